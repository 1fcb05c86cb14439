"""What to read, how to cut it into documents, and how to hold some of it out."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from meristem.settings import Settings


class CorpusSettings(Settings):
    """Where the text comes from and what becomes of it before the tokenizer sees it."""

    source: str | tuple[str, ...] = "builtin:pydocs"
    """A file, a folder, a glob, builtin:NAME, hub:OWNER/NAME[?config=…&split=…], or several of these."""

    document: Literal["auto", "file", "block", "line"] = "auto"
    """What one document of plain text is; auto: small files whole, large ones by blank lines if there are many."""

    text: str | None = None
    """The column that holds the text in jsonl, csv, tsv, parquet and hub data; found by itself where it is clear."""

    deduplicate: bool = True
    """Keep only the first of documents with exactly the same text."""

    validation: float = Field(0.02, ge=0.0, le=0.5)
    """Share of documents held out for evaluation during training."""

    test: float = Field(0.02, ge=0.0, le=0.5)
    """Share of documents held out for the one test at the end."""

    shortest: int = Field(1, ge=1)
    """Documents with fewer characters are dropped."""

    limit: int | None = Field(None, ge=1)
    """Stop after this many kept documents."""

    processes: int | None = Field(None, ge=1, le=256)
    """Processes that read and clean; as many as there are cores when not given. Never changes the result."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.source or not all(self.sources):
            raise ValueError("corpus.source is empty: give a file, a folder, a glob, builtin:NAME or hub:OWNER/NAME")
        if self.validation + self.test >= 1.0:
            raise ValueError("validation and test together leave nothing to train on")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources, whether one was given or several."""
        return (self.source,) if isinstance(self.source, str) else self.source
