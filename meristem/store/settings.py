"""What a recipe may say about the store."""

from __future__ import annotations

from pydantic import Field

from meristem.settings import Settings


class StoreSettings(Settings):
    """How token ids lie on disk and how rows are cut from them."""

    lanes: bool | None = None
    """Cut text into lanes that go on from step to step; unset, where the model's memory is on."""
    isolate: bool = False
    """Documents that share a window cannot see each other."""
    max_unknown: float = Field(0.5, ge=0, le=1)
    """Largest share of unknown tokens in the text with which training begins; 1 accepts any."""
    shard_tokens: int = Field(32_000_000, ge=1, le=1 << 30)
    """Tokens after which a shard is closed, at the end of a document."""
    picture: int = Field(32, ge=8, le=1024)
    """Pixels along each side of a stored picture; others are resized to it."""
