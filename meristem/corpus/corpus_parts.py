"""Parts of a processed corpus on disk: kept documents with their counts; each part is complete or does not exist."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from meristem.config.errors import MeristemError
from meristem.corpus.split import UnsplitDocument
from meristem.utils import untrusted_files
from meristem.utils.durable_files import PARTIAL_SUFFIX, PartialFile, fsync_folder, range_sha256, write_durably
from meristem.utils.untrusted_files import ParseLimits

log = logging.getLogger(__name__)

FORMAT = 1
SILENT_WAIT_SECONDS = 2.0
"""Seconds to wait for another process without a message: it may only be checking the same folder."""
JSON_LIMITS = ParseLimits(max_bytes=1 << 29, max_items=1 << 25)
"""Limits for reading a part's JSON file: some millions of files."""


class FrozenRecord(BaseModel):
    """A frozen entry of a part's JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class IndexRange(FrozenRecord):
    """Length of an index file when the part was finished, and the entries the part added to it."""

    start: int
    stop: int
    sha256: str


class CorpusPart(FrozenRecord):
    """One finished part, and where the next one starts."""

    format: int = FORMAT
    origin: str
    """The processing pass it belongs to (`IngestHistory.origin`)."""
    number: int
    turn: int
    """The increment it belongs to: which batch of added files."""
    covers: list[list[str | int | None]]
    """The read ranges it was made from, wholly or partly: file, start, stop."""
    files: list[list[str | int | None]]
    """Their files, each with size and modification time."""
    piece: int
    """The next read range of the increment."""
    batches: int
    """Batches of that range that are in this part or earlier ones."""
    passed: int
    """Lines of the file before the next range."""
    last: bool
    """Whether it is the last part of its increment."""
    size: int
    sha256: str
    """SHA-256 of the documents' file."""
    index: dict[str, IndexRange]
    account: dict[str, Any]
    held_out: int = 0
    """Number of documents from separate validation and test data."""

    @property
    def kept(self) -> int:
        """Number of documents in it."""
        num_kept: int = self.account["kept"]
        return num_kept


def part_path(folder: Path, number: int, extension: str) -> Path:
    """Path of a part's file: its documents (`jsonl`) or its metadata (`json`)."""
    return folder / "parts" / f"{number:06d}.{extension}"


def save_sealed_json(path: Path, body: dict[str, Any]) -> None:
    """Write JSON with its own checksum, atomically."""
    write_durably(path, _format_sealed(body))


def load_sealed_json(path: Path) -> dict[str, Any]:
    """Load what `save_sealed_json` wrote; a ValueError if it is damaged, a MeristemError if there is no file."""
    text = untrusted_files.read_bytes(path, JSON_LIMITS.max_bytes).decode()
    body = untrusted_files.parse_strict_json(text, JSON_LIMITS)
    if not isinstance(body, dict) or body.pop("seal", None) is None or _format_sealed(body) != text:
        raise ValueError("not as it was written")
    return body


def _format_sealed(body: dict[str, Any]) -> str:
    # as it will be read back: JSON turns integer keys into strings
    body = json.loads(untrusted_files.to_json(body, ascii_only=True))
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return untrusted_files.to_json({"seal": digest, **body}, ascii_only=True) + "\n"


def load_finished_parts(folder: Path, origin: str, *, verify: bool) -> tuple[list[CorpusPart], str]:
    """The parts up to the first that is missing or damaged, and what is wrong with that one ("" if there is none)."""
    parts: list[CorpusPart] = []
    while True:
        number = len(parts)
        description_path, documents_path = part_path(folder, number, "json"), part_path(folder, number, "jsonl")
        if not description_path.exists():
            has_later = any(
                int(path.stem) > number for path in description_path.parent.glob("*.json") if path.stem.isdigit()
            )
            return parts, f"{description_path}: missing" if has_later else ""
        try:
            part = CorpusPart.model_validate(load_sealed_json(description_path))
        except (MeristemError, ValueError):
            return parts, f"{description_path}: damaged"
        if part.origin != origin:
            return parts, ""  # left over from an earlier, abandoned pass
        if part.number != number or not documents_path.is_file():
            return parts, f"{documents_path}: missing"
        if documents_path.stat().st_size != part.size or (verify and range_sha256(documents_path) != part.sha256):
            return parts, f"{documents_path}: damaged"
        parts.append(part)


def discard_parts(folder: Path, first: int) -> None:
    """Delete all parts from `first` on, metadata first, and all partial files."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    paths = sorted((folder / "parts").iterdir(), key=lambda path: (path.suffix == ".json", path.name), reverse=True)
    for path in paths:
        if path.name.endswith(PARTIAL_SUFFIX) or not path.stem.isdigit() or int(path.stem) >= first:
            path.unlink()


def iter_documents(folder: Path, parts: Iterable[CorpusPart]) -> Iterator[UnsplitDocument]:
    """The kept documents of the parts, in order."""
    for part in parts:
        yield from read_documents_file(part_path(folder, part.number, "jsonl"))


def read_documents_file(path: Path) -> Iterator[UnsplitDocument]:
    """The documents that a `PartWriter` wrote."""
    try:
        with path.open(encoding="utf-8", errors="surrogatepass", newline="\n") as file:
            for line in file:
                yield _parse_document(line)
    except OSError as error:
        raise MeristemError(f"{path}: cannot be read ({error.strerror}); run again to recreate it") from None


def _document_fields(document: UnsplitDocument) -> dict[str, Any]:
    """The fields of a JSON line: the location is called `place`, and the split is left out if it is not known."""
    fields = {"place" if name == "location" else name: value for name, value in document._asdict().items()}
    return fields if document.split else {name: value for name, value in fields.items() if name != "split"}


def _parse_document(line: str) -> UnsplitDocument:
    fields = untrusted_files.parse_json_line(line)
    return UnsplitDocument(**{"location" if name == "place" else name: value for name, value in fields.items()})


class PartWriter(PartialFile):
    """Writes the documents of one part to disk."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(part_path(folder, number, "jsonl"))

    def add(self, documents: Iterable[UnsplitDocument]) -> None:
        """Append documents."""
        lines = "".join(untrusted_files.to_json(_document_fields(document)) + "\n" for document in documents)
        self.write(lines.encode("utf-8", "surrogatepass"))

    def finish(self) -> str:
        """Give the documents their file name, and return the SHA-256."""
        sha256 = super().finish()
        fsync_folder(self.path.parent)
        return sha256


@contextmanager
def folder_lock(folder: Path, activity: str) -> Iterator[bool]:
    """Hold a folder's lock; yields whether another process held it. The lock is released however the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        start_time, is_announced, waited = time.monotonic(), False, False
        while not _try_lock(file):
            waited = True
            if not is_announced and time.monotonic() > start_time + SILENT_WAIT_SECONDS:
                log.warning("%s: another process is %s; waiting for it to finish", folder, activity)
                is_announced = True
            time.sleep(0.05)
        yield waited


@contextmanager
def try_folder_lock(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock if no other process does, and the folder can be written; yields whether it is held."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError:
        yield False
        return
    with file:
        yield _try_lock(file)


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # owned by the process: workers do not inherit it
    except (BlockingIOError, PermissionError):  # another process has it; file systems without locks raise other errors
        return False
    return True
