"""What to read, how to cut it into documents, and how to hold some of it out."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from meristem import samples
from meristem.corpus.languages import Languages
from meristem.corpus.near import Nearness
from meristem.corpus.private import Kinds
from meristem.corpus.quality import Quality
from meristem.corpus.sides import PAIR, PICTURE
from meristem.settings import Settings

REFINING = {"near", "quality", "boilerplate", "languages", "private"}
"""Settings that ask for more than cleaning: where one is on, a corpus of files is refined once and kept."""


class CorpusSettings(Settings):
    """Where the text comes from and what becomes of it before the tokenizer sees it."""

    source: str | tuple[str, ...] = "builtin:pydocs"
    """A file, a folder, a glob, builtin:NAME, hub:OWNER/NAME[?config=…&split=…], or several of these."""

    document: Literal["auto", "file", "block", "line"] = "auto"
    """What one document of plain text is; auto: small files whole, large ones by blank lines if there are many."""

    text: str | None = None
    """The column that holds the text in jsonl, csv, tsv, parquet and hub data; found by itself where it is clear."""

    target: str | tuple[str, ...] | None = None
    """What belongs to each text: its column in such data, or a file with a line for each line of the source."""

    picture: str | None = None
    """The column of a jsonl, csv or tsv file with the pictures its texts tell of: paths, relative to the file."""

    deduplicate: bool = True
    """Keep only the first of documents with exactly the same text."""

    boilerplate: bool = False
    """Take out lines that are not the text: menus, notices, share buttons, footers, repeats."""

    languages: Languages = None
    """Keep only documents in these: en, or [en, zh]; all of them when not given."""

    quality: Quality = None
    """Drop what the rules of quality.py find wanting: true, or settings of its own."""

    private: Kinds = ()
    """Private strings to be replaced by a mark: true, or some of e-mail, phone, card, identity, account, ip, key."""

    near: Nearness = None
    """Find documents that are nearly the same as an earlier one, and drop them: true, or settings of its own."""

    half: Literal[0, 1] | None = None
    """Only one half of the documents, chosen by their texts: what learns from the other half never meets them."""

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
        if self.target is not None and self.picture is not None:
            raise ValueError("target and picture: a text belongs to one or the other; put them in two entries of mix")
        if isinstance(self.target, tuple) and len(self.target) != len(self.sources):
            raise ValueError(f"target names {len(self.target)} files for {len(self.sources)} sources; one for each")
        if self.near is not None and self.mark == PICTURE:
            raise ValueError("near compares texts, and different pictures may be told of alike: leave it out here")
        if self.validation + self.test >= 1.0:
            raise ValueError("validation and test together leave nothing to train on")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources, whether one was given or several."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def targets(self) -> tuple[str | None, ...]:
        """For each source its target file or column, or nothing."""
        return self.target if isinstance(self.target, tuple) else (self.target,) * len(self.sources)

    @property
    def refined(self) -> bool:
        """Whether more than cleaning is asked for."""
        return any(self.model_dump(include=REFINING).values())

    def deciding(self) -> dict[str, Any]:
        """All that decides which documents there are, but for the source; what is off leaves no trace."""
        absent = {"half"} if self.half is None else set()  # what was not there before keeps the key it always had
        one_sided = set() if self.mark else {"target", "picture"}
        plain = self.model_dump(mode="json", exclude={"source", "processes", *one_sided, *absent})
        if self.near is not None:
            plain["near"].pop("memory_mb")
        return {name: value for name, value in plain.items() if value or name not in REFINING}

    @property
    def mark(self) -> str:
        """What joins the two sides of these documents; nothing where they are plain text."""
        builtins = {samples.kind(s.removeprefix("builtin:")) for s in self.sources if s.startswith("builtin:")}
        if self.target is not None or "pairs" in builtins:
            return PAIR
        return PICTURE if self.picture is not None or "pictures" in builtins else ""
