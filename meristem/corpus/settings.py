"""Corpus settings: sources, how they are cut into documents, cleaning and filters, held-out splits."""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from meristem import samples
from meristem.config.conditions import SettingConditions, when
from meristem.config.name_choice import NameChoice
from meristem.config.setting_names import with_hashed_names
from meristem.config.settings import Settings
from meristem.corpus.canaries.settings import CanaryOption
from meristem.corpus.clean.language_id import Languages, identifier_version
from meristem.corpus.clean.quality_filters import QualityOption
from meristem.corpus.dedup.minhash import NearDedupOption
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR
from meristem.corpus.privacy.id_numbers import validator_version
from meristem.corpus.privacy.pii import PIIKinds
from meristem.data.sources import format_class, format_names

PROCESSING_SETTINGS = {"near_dedup", "quality", "boilerplate", "languages", "pii"}
"""Settings beyond basic cleaning: if one is on, a corpus of files is processed once and cached."""
LATER_SETTINGS = {"half": None, "format": "auto", "encoding": None}
"""Settings added after datasets had been cached without them, and the value that changes nothing."""

PERCENT_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def _parse_share(value: Any) -> Any:
    """A percentage such as "10%" as a number; anything else unchanged."""
    match = PERCENT_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) / 100 if match else value


ShareOrSource = Annotated[float | str | tuple[str, ...], BeforeValidator(_parse_share)]
"""A share of the documents, or the source of separate documents."""


class HeldOutShares(NamedTuple):
    """Shares of the source's documents that are held out; 0 if a split has separate data."""

    validation: float
    test: float


class CorpusSettings(Settings):
    """Where the text comes from and how it is processed before tokenization."""

    renamed: ClassVar[dict[str, str]] = {
        "near": "near_dedup",
        "picture": "image",
        "private": "pii",
        "shortest": "min_characters",
    }

    added: ClassVar[frozenset[str]] = frozenset({"canaries"})

    needs: ClassVar[SettingConditions] = {
        "encoding": (when("format", "auto", *(name for name in format_names() if format_class(name).is_text)),),
        "document": (when("format", "auto", "text"),),
        "text": (when("format", "auto", *format_names(text=False)),),
        "image": (when("format", "auto", "jsonl", "csv", "tsv"),),
    }

    source: str | tuple[str, ...] = "builtin:pydocs"
    """A file, a folder, a glob, builtin:NAME, hub:OWNER/NAME[?config=…&split=…], or several of these."""

    format: Annotated[str, NameChoice("format", lambda: ("auto", *format_names()))] = "auto"
    """File format, whatever the file extension; auto: from the extension."""

    encoding: str | None = None
    """Encoding of the files, such as cp1250 or shift_jis; UTF-8, UTF-16, Windows-1252 and GB18030 are detected."""

    document: Literal["auto", "file", "block", "line"] = "auto"
    """Unit of plain text that is one document; auto: small files whole, large ones by blank lines if there are many."""

    text: str | None = None
    """Column with the text in jsonl, csv, tsv, parquet and hub data; detected if it is clear."""

    target: str | tuple[str, ...] | None = None
    """Target of each text: its column in such data, or a file with one line per line of the source."""

    image: str | None = None
    """Column of image paths, relative to the jsonl, csv or tsv file, whose captions are the texts."""

    deduplicate: bool = True
    """Keep only the first of documents with exactly the same text."""

    boilerplate: bool = False
    """Remove lines that are not part of the text: menus, notices, share buttons, footers, repeats."""

    languages: Languages = None
    """Keep only documents in these languages: en, or [en, zh]; all if not given."""

    quality: QualityOption = None
    """Drop low-quality documents (Gopher and C4 rules, quality_filters.py): true, or its own settings."""

    pii: PIIKinds = ()
    """Personal data to replace by placeholders: true, or some of e-mail, phone, card, identity, account, ip, key."""

    near_dedup: NearDedupOption = None
    """Drop near duplicates of earlier documents (MinHash): true, or its own settings."""

    canaries: CanaryOption = None
    """Plant random texts into the training split, to measure memorisation: true, or its own settings."""

    half: Literal[0, 1] | None = None
    """Use only one half of the documents, chosen by a hash of their text; the other half contains none of them."""

    validation: ShareOrSource = 0.02
    """Held out for evaluation during training: a share of the documents, or a file, folder, glob or builtin:NAME."""

    test: ShareOrSource = 0.02
    """Held out for the final test: a share of the documents, or a file, folder, glob or builtin:NAME."""

    min_characters: int = Field(1, ge=1)
    """Documents with fewer characters are dropped."""

    limit: int | str | None = None
    """Use only the first so many documents of the source; or a share such as 10%, chosen by a hash of their text."""

    processes: int | None = Field(None, ge=1, le=256)
    """Processes that read and clean; by default the number of cores. Never changes the result."""

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str | None) -> str | None:
        try:
            if value is not None and not codecs.lookup(value)._is_text_encoding:
                raise LookupError
        except LookupError:
            raise ValueError(f"unknown encoding {value!r}; use for instance utf-8, cp1250, shift_jis, big5") from None
        return value

    @field_validator("validation", "test")
    @classmethod
    def _check_share_or_source(cls, value: float | str | tuple[str, ...]) -> float | str | tuple[str, ...]:
        if isinstance(value, float) and not 0 <= value <= 0.5:
            raise ValueError(f"{value:g} is not a share between 0 and 0.5")
        if not isinstance(value, float) and not (value and all(value)):
            raise ValueError("give a share, a file, a folder, a glob or builtin:NAME")
        return value

    @field_validator("limit")
    @classmethod
    def _check_limit(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        share = _parse_share(value) if isinstance(value, str) else None
        is_valid = isinstance(share, float) and 0 < share <= 1 if isinstance(value, str) else value is None or value > 0
        if not is_valid:
            raise ValueError(f"{value!r}: give a number of documents of at least 1, or a share such as 10%")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if not self.source or not all(self.sources):
            raise ValueError("corpus.source is empty: give a file, a folder, a glob, builtin:NAME or hub:OWNER/NAME")
        if self.target is not None and self.image is not None:
            raise ValueError("target and image cannot be combined in one corpus; use two entries of mix")
        if isinstance(self.target, tuple) and len(self.target) != len(self.sources):
            raise ValueError(f"target names {len(self.target)} files for {len(self.sources)} sources; one each")
        if self.near_dedup is not None and self.side_separator == IMAGE_SEPARATOR:
            raise ValueError(
                "near_dedup compares texts, but different images may have similar captions: leave it out here"
            )
        self._check_canaries()
        if sum(self.held_out_shares) >= 1.0:
            raise ValueError("validation and test together leave nothing to train on")
        return self

    def _check_canaries(self) -> None:
        """Raise if canaries cannot be planted among these documents."""
        if self.canaries is None:
            return
        if self.side_separator == IMAGE_SEPARATOR:
            raise ValueError("canaries are texts, and every document here has an image: leave them out")
        unprefixed = [template.format for template in self.canaries.templates if template.format.startswith("{")]
        single = [name for name in unprefixed if name.count("{") == 1]
        if self.side_separator and single:
            raise ValueError(
                f"canaries: {single[0]!r} has no text before its placeholder, which would be the source of the pair"
            )

    @property
    def without_canaries(self) -> Self:
        """These settings without canaries: the same documents and splits otherwise."""
        return self.model_copy(update={"canaries": None})

    @property
    def held_out_shares(self) -> HeldOutShares:
        """The share of the source held out for each split."""
        return HeldOutShares(*(value if isinstance(value, float) else 0.0 for value in (self.validation, self.test)))

    @property
    def held_out_sources(self) -> dict[str, tuple[str, ...]]:
        """Splits with separate data, test first: their sources."""
        by_split = {"test": self.test, "validation": self.validation}
        return {
            name: (value,) if isinstance(value, str) else value
            for name, value in by_split.items()
            if not isinstance(value, float)
        }

    @property
    def max_documents(self) -> int | None:
        """The number of documents after which reading stops, if corpus.limit is one."""
        return self.limit if isinstance(self.limit, int) else None

    @property
    def document_share(self) -> float | None:
        """The share of documents to keep, if corpus.limit is a share."""
        return _parse_share(self.limit) if isinstance(self.limit, str) else None

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources as a tuple, whether one or several were given."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def targets(self) -> tuple[str | None, ...]:
        """The target file or column of each source, or None."""
        return self.target if isinstance(self.target, tuple) else (self.target,) * len(self.sources)

    @property
    def needs_processing(self) -> bool:
        """Whether a setting beyond basic cleaning is on."""
        return any(self.model_dump(include=PROCESSING_SETTINGS).values())

    def cache_key_fields(self) -> dict[str, Any]:
        """All settings that affect the documents, except the source, under the names that are hashed; settings that
        are off are omitted."""
        # settings added later leave old keys unchanged; separate held-out data are identified by their files
        omitted = {name for name, default in LATER_SETTINGS.items() if getattr(self, name) == default} | set(
            self.held_out_sources
        )
        unpaired = set() if self.side_separator else {"target", "image"}
        dumped = self.model_dump(mode="json", exclude={"source", "processes", *unpaired, *omitted})
        if self.near_dedup is not None:
            dumped["near_dedup"].pop("memory_mb")
        relevant = {name: value for name, value in dumped.items() if value or name not in PROCESSING_SETTINGS}
        libraries = {"language_id": identifier_version()} if self.languages or self.quality else {}
        if self.pii:
            libraries["id_numbers"] = validator_version()
        return {**with_hashed_names(self, relevant), **libraries}

    @property
    def side_separator(self) -> str:
        """The separator between the two sides of these documents; "" for plain text."""
        builtin_kinds = {
            samples.corpus_kind(source.removeprefix("builtin:"))
            for source in self.sources
            if source.startswith("builtin:")
        }
        if self.target is not None or "pairs" in builtin_kinds:
            return PAIR_SEPARATOR
        return IMAGE_SEPARATOR if self.image is not None or "pictures" in builtin_kinds else ""
