"""Settings of the tokenized dataset."""

from __future__ import annotations

from pydantic import Field

from meristem.config.settings import Settings


class StoreSettings(Settings):
    """How token ids are stored on disk and how rows are cut from them."""

    lanes: bool | None = None
    """Cut text into parallel streams that continue from step to step; if unset, whenever the model's memory is on."""
    isolate: bool = False
    """Documents that share a window cannot attend to each other."""
    max_unknown: float = Field(0.5, ge=0, le=1)
    """Largest share of unknown tokens in the text that training accepts; 1 accepts any."""
    shard_tokens: int = Field(32_000_000, ge=1, le=1 << 30)
    """Tokens after which a shard is closed, at the end of a document."""
    picture: int = Field(32, ge=8, le=1024)
    """Height and width of stored images in pixels; others are resized."""
