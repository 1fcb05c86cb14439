"""What to read, how to cut it into documents, and how to hold some of it out."""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from meristem import samples
from meristem.corpus.languages import Languages
from meristem.corpus.near import Nearness
from meristem.corpus.private import Kinds
from meristem.corpus.quality import Quality
from meristem.corpus.sides import PAIR, PICTURE
from meristem.dependences import Dependences, when
from meristem.settings import Settings

REFINING = {"near", "quality", "boilerplate", "languages", "private"}
"""Settings that ask for more than cleaning: where one is on, a corpus of files is refined once and kept."""
LATER = {"half": None, "format": "auto", "encoding": None}
"""Settings that came after shards had been made without them, and the value that changes nothing."""

PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def _share(value: Any) -> Any:
    """A share that is written as a percentage, as a number; anything else as it is."""
    found = PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) / 100 if found else value


ShareOrSource = Annotated[float | str | tuple[str, ...], BeforeValidator(_share)]
"""A share of the documents, or where other documents are."""


class Shares(NamedTuple):
    """Shares of the source's documents that are held out; 0 where a split has data of its own."""

    validation: float
    test: float


class CorpusSettings(Settings):
    """Where the text comes from and what becomes of it before the tokenizer sees it."""

    needs: ClassVar[Dependences] = {
        "encoding": (when("format", "auto", "text", "wikitext", "jsonl", "csv", "tsv"),),
        "document": (when("format", "auto", "text"),),
        "text": (when("format", "auto", "jsonl", "csv", "tsv", "parquet"),),
        "picture": (when("format", "auto", "jsonl", "csv", "tsv"),),
    }

    source: str | tuple[str, ...] = "builtin:pydocs"
    """A file, a folder, a glob, builtin:NAME, hub:OWNER/NAME[?config=…&split=…], or several of these."""

    format: Literal["auto", "text", "wikitext", "jsonl", "csv", "tsv", "parquet"] = "auto"
    """How the files are written, whatever they end in; auto: as their endings say."""

    encoding: str | None = None
    """The encoding of the files, such as cp1250 or shift_jis; UTF-8, UTF-16, Windows-1252 and GB18030 are found."""

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

    validation: ShareOrSource = 0.02
    """Held out for evaluation during training: a share of the documents, or a file, folder, glob or builtin:NAME."""

    test: ShareOrSource = 0.02
    """Held out for the one test at the end: a share of the documents, or a file, folder, glob or builtin:NAME."""

    shortest: int = Field(1, ge=1)
    """Documents with fewer characters are dropped."""

    limit: int | str | None = None
    """Only so many documents of the source, the first; or a share of them, such as 10%, chosen by their texts."""

    processes: int | None = Field(None, ge=1, le=256)
    """Processes that read and clean; as many as there are cores when not given. Never changes the result."""

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        try:
            if value is not None and not codecs.lookup(value)._is_text_encoding:
                raise LookupError
        except LookupError:
            raise ValueError(f"no encoding {value!r} is known; for instance utf-8, cp1250, shift_jis, big5") from None
        return value

    @field_validator("validation", "test")
    @classmethod
    def _share_or_source(cls, value: float | str | tuple[str, ...]) -> float | str | tuple[str, ...]:
        if isinstance(value, float) and not 0 <= value <= 0.5:
            raise ValueError(f"{value:g} is no share from 0 to 0.5 of the documents")
        if not isinstance(value, float) and not (value and all(value)):
            raise ValueError("give a share, a file, a folder, a glob or builtin:NAME")
        return value

    @field_validator("limit")
    @classmethod
    def _number_or_share(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        share = _share(value) if isinstance(value, str) else None
        possible = isinstance(share, float) and 0 < share <= 1 if isinstance(value, str) else value is None or value > 0
        if not possible:
            raise ValueError(f"{value!r}: give a number of documents from 1 on, or a share such as 10%")
        return value

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
        if sum(self.shares) >= 1.0:
            raise ValueError("validation and test together leave nothing to train on")
        return self

    @property
    def shares(self) -> Shares:
        """What is drawn from the source for each split."""
        return Shares(*(one if isinstance(one, float) else 0.0 for one in (self.validation, self.test)))

    @property
    def own_splits(self) -> dict[str, tuple[str, ...]]:
        """Splits with data of their own, test first: their sources."""
        given = {"test": self.test, "validation": self.validation}
        return {
            name: (one,) if isinstance(one, str) else one for name, one in given.items() if not isinstance(one, float)
        }

    @property
    def most_documents(self) -> int | None:
        """The number of documents after which reading stops."""
        return self.limit if isinstance(self.limit, int) else None

    @property
    def share_of_documents(self) -> float | None:
        """The share of the documents that is kept, where the limit is one."""
        return _share(self.limit) if isinstance(self.limit, str) else None

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
        # what was not there before keeps the key it always had; data of their own are known by their files
        absent = {name for name, usual in LATER.items() if getattr(self, name) == usual} | set(self.own_splits)
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
