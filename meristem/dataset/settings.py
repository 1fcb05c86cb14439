"""Settings of the tokenized dataset."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from meristem.config.settings import Settings


class DatasetSettings(Settings):
    """How token ids are stored on disk and how rows are cut from them."""

    renamed: ClassVar[dict[str, str]] = {
        "isolate": "intra_document_mask",
        "lanes": "contiguous_batches",
        "picture": "image_size",
    }

    added = frozenset({"shuffle_documents"})

    contiguous_batches: bool | None = None
    """Cut text into parallel streams that continue from step to step; if unset, whenever the model's memory is on."""
    intra_document_mask: bool = False
    """Documents that share a window cannot attend to each other."""
    shuffle_documents: bool = False
    """Packed text: put the documents in a new order in each epoch, so that windows are cut elsewhere."""
    max_unknown: float = Field(0.5, ge=0, le=1)
    """Largest share of unknown tokens in the text that training accepts; 1 accepts any."""
    shard_tokens: int = Field(32_000_000, ge=1, le=1 << 30)
    """Tokens after which a shard is closed, at the end of a document."""
    image_size: int = Field(32, ge=8, le=1024)
    """Height and width of stored images in pixels; others are resized."""
