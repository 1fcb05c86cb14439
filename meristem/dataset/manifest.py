"""The manifest of a dataset: every shard, size and SHA-256 of every file, and a checksum of the manifest itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from meristem.config.errors import MeristemError
from meristem.corpus.corpus_parts import FrozenRecord
from meristem.utils import untrusted_files
from meristem.utils.durable_files import write_durably
from meristem.utils.untrusted_files import ParseLimits

FORMAT = 1
SPLITS = ("train", "validation", "test")
MANIFEST_FILE, JOURNAL_FILE = "dataset.json", "journal.json"
DTYPE_BYTES = {"uint16": 2, "uint32": 4}
"""Type of the stored ids → bytes per id."""
JSON_LIMITS = ParseLimits(max_bytes=64 << 20, max_items=1 << 22, max_objects=1 << 20)
"""Limits for reading a manifest: about 100,000 shards."""


def manifest_name(state: str = "") -> str:
    """File name of the manifest of a complete dataset, or of one state of a growing one."""
    return f"store-{state}.json" if state else MANIFEST_FILE


class FileRecord(FrozenRecord):
    """Size and SHA-256 of one file as it was written."""

    size: int
    sha256: str


class ShardRecord(FrozenRecord):
    """One finished shard, and the part of the corpus it was made from."""

    tokens: int
    documents: int
    sentences: int
    bytes: int
    """UTF-8 bytes of the text behind the tokens."""
    consumed: int
    """Documents read from the corpus, including those without a single token."""
    source: str
    """SHA-256 over the digests of the consumed documents: tells on resuming whether the corpus is still the same."""
    files: dict[str, FileRecord]
    unknown: int | None = None
    """Unknown tokens among `tokens`; None in shards written before they were counted."""
    unknown_bytes: int | None = None
    """UTF-8 bytes of the text that unknown tokens cover."""


class DatasetManifest(FrozenRecord):
    """The manifest of a dataset: `journal.json` while it is being built, `dataset.json` once it is complete."""

    format: int = FORMAT
    tokenizer: str
    separator: int
    dtype: str
    words: bool
    shard_tokens: int
    splits: dict[str, list[ShardRecord]]

    def total(self, split: str, count_name: str) -> int:
        """The sum of a count over a split's shards."""
        return sum(getattr(shard, count_name) for shard in self.splits.get(split, []))

    def to_json(self) -> str:
        """Canonical JSON of this manifest, its own checksum included."""
        names = ("tokens", "documents", "sentences", "bytes")
        totals = {split: {name: self.total(split, name) for name in names} for split in self.splits}
        body = {"store": self.model_dump(mode="json", exclude_none=True), "totals": totals}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
        return json.dumps({"sha256": digest, **body}, indent=1, sort_keys=True, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Write atomically."""
        write_durably(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> DatasetManifest:
        """Read and verify; a single changed byte is an error."""
        try:
            text = untrusted_files.read_bytes(path, JSON_LIMITS.max_bytes).decode()
            body = untrusted_files.parse_strict_json(text, JSON_LIMITS)["store"]
            if body["format"] != FORMAT:
                raise MeristemError(
                    f"{path}: dataset format {body['format']}, this version reads {FORMAT}; {rebuild_hint(path)}"
                )
            manifest = cls.model_validate(body)
        except (ValueError, KeyError, TypeError, ValidationError):
            raise damaged_error(path, "not a dataset manifest") from None
        if manifest.to_json() != text:
            raise damaged_error(path, "its checksum does not match")
        if manifest.dtype not in DTYPE_BYTES or not set(manifest.splits) <= set(SPLITS):
            raise damaged_error(path, "an unknown token type or split")
        return manifest


def rebuild_hint(path: Path) -> str:
    """The advice for a dataset that cannot be used."""
    folder = path.parent if path.suffix == ".json" else path.parent.parent
    return f"delete the folder {folder} and run again to rebuild it"


def damaged_error(path: Path, reason: str) -> MeristemError:
    """The error for a file whose contents are not what was written."""
    return MeristemError(f"{path}: damaged ({reason}); {rebuild_hint(path)}")
