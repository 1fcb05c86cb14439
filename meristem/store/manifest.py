"""What a store folder says about itself: every shard, every file's size and SHA-256, and a checksum of that."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from meristem import bounded
from meristem.bounded import Bounds
from meristem.corpus.parts import flush_folder
from meristem.errors import MeristemError
from meristem.system_errors import naming_file

FORMAT = 1
SPLITS = ("train", "validation", "test")
FINISHED, JOURNAL = "store.json", "journal.json"
PARTIAL = ".partial"
DTYPES = {"uint16": 2, "uint32": 4}
"""How ids are kept → bytes of each."""
BOUNDS = Bounds(size=64 << 20, parts=1 << 22, objects=1 << 20)
"""Of a description: some 100,000 shards."""


def finished_name(state: str = "") -> str:
    """The description of a complete store, or of one of the states of a store that grows."""
    return f"store-{state}.json" if state else FINISHED


class Record(BaseModel):
    """A frozen entry of the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FileRecord(Record):
    """One file as it was written."""

    size: int
    sha256: str


class ShardRecord(Record):
    """One finished shard, and which part of the corpus it came from."""

    tokens: int
    documents: int
    sentences: int
    bytes: int
    """UTF-8 bytes of the text behind the tokens."""
    consumed: int
    """Documents taken from the corpus, those without a single token included."""
    source: str
    """SHA-256 over the digests of the consumed documents, so that going on can tell the same corpus from another."""
    files: dict[str, FileRecord]
    unknown: int | None = None
    """Unknown tokens among `tokens`; shards that were made before they were counted do not say."""
    unknown_bytes: int | None = None
    """UTF-8 bytes of the text that unknown tokens stand for."""


class Manifest(Record):
    """A whole store: `journal.json` while it is being written, `store.json` once it is complete."""

    format: int = FORMAT
    tokenizer: str
    separator: int
    dtype: str
    words: bool
    shard_tokens: int
    splits: dict[str, list[ShardRecord]]

    def total(self, split: str, what: str) -> int:
        """The sum of a count over a split's shards."""
        return sum(getattr(shard, what) for shard in self.splits.get(split, []))

    def text(self) -> str:
        """The one way of writing this manifest, its own checksum included."""
        totals = {split: {what: self.total(split, what) for what in ("tokens", "documents", "sentences", "bytes")}
                  for split in self.splits}
        body = {"store": self.model_dump(mode="json", exclude_none=True), "totals": totals}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
        return json.dumps({"sha256": digest, **body}, indent=1, sort_keys=True, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Write beside, flush, rename: the file is old or new, never half."""
        beside = path.with_name(path.name + PARTIAL)
        with naming_file(path), beside.open("w", encoding="utf-8") as file:
            file.write(self.text())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        flush_folder(path.parent)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read and check; one changed byte is enough to be refused."""
        try:
            text = bounded.content(path, BOUNDS.size).decode()
            body = bounded.strict(text, BOUNDS)["store"]
            if body["format"] != FORMAT:
                raise MeristemError(f"{path}: store format {body['format']}, this version reads {FORMAT}; {mend(path)}")
            manifest = cls.model_validate(body)
        except (ValueError, KeyError, TypeError, ValidationError):
            raise damaged(path, "not a store's description") from None
        if manifest.text() != text:
            raise damaged(path, "its checksum does not match")
        if manifest.dtype not in DTYPES or not set(manifest.splits) <= set(SPLITS):
            raise damaged(path, "a type of tokens or a split that no store has")
        return manifest


def mend(path: Path) -> str:
    """What a person does about a store that cannot be used."""
    folder = path.parent if path.suffix == ".json" else path.parent.parent
    return f"delete the folder {folder} and run again to rebuild it"


def damaged(path: Path, why: str) -> MeristemError:
    """The error for a file that is not what was written."""
    return MeristemError(f"{path}: damaged ({why}); {mend(path)}")
