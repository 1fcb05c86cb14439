"""A refined corpus on disk: kept documents in parts, each with its account, each whole or not there at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from meristem import bounded
from meristem.bounded import Bounds
from meristem.corpus.growing import digest_of
from meristem.corpus.split import Undecided
from meristem.errors import MeristemError
from meristem.system_errors import naming_file

log = logging.getLogger(__name__)

FORMAT = 1
QUIET_WAIT = 2.0
"""Seconds of waiting for another process before it is said: it may just be looking at the same folder."""
PARTIAL = ".partial"
BOUNDS = Bounds(size=1 << 29, parts=1 << 25)
"""Of a description: some millions of files."""


class Record(BaseModel):
    """A frozen entry of a part's description."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Rows(Record):
    """How far a file of the index reached when the part was finished, and what the part added to it."""

    start: int
    stop: int
    sha256: str


class Part(Record):
    """One finished part, and where the next one begins."""

    format: int = FORMAT
    origin: str
    """Which refining it belongs to."""
    number: int
    turn: int
    """Which of the times that files came it belongs to."""
    covers: list[list[str | int | None]]
    """The pieces it was made from, wholly or partly: file, start, stop."""
    files: list[list[str | int | None]]
    """Their files, each with its size and when it was written."""
    piece: int
    """The next piece of the turn's plan."""
    batches: int
    """Batches of that piece that belong to this part or to earlier ones."""
    passed: int
    """Lines of the file before the next piece."""
    last: bool
    """Whether nothing more came of this turn."""
    size: int
    sha256: str
    """Of the documents' file."""
    index: dict[str, Rows]
    account: dict[str, Any]
    held_out: int = 0
    """Documents of validation and test data of their own in it."""

    @property
    def kept(self) -> int:
        """Documents in it."""
        kept: int = self.account["kept"]
        return kept


def named(folder: Path, number: int, ending: str) -> Path:
    """A file of a part: its documents (`jsonl`) or its description (`json`)."""
    return folder / "parts" / f"{number:06d}.{ending}"


def save(path: Path, body: dict[str, Any]) -> None:
    """Write a description with its own checksum: beside, flushed, renamed."""
    beside = path.with_name(path.name + PARTIAL)
    with naming_file(path), beside.open("w", encoding="utf-8") as file:
        file.write(_sealed(body))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush_folder(path.parent)


def load(path: Path) -> dict[str, Any]:
    """A description that was saved; anything else is a ValueError, or a MeristemError where there is no file."""
    text = bounded.content(path, BOUNDS.size).decode()
    body = bounded.strict(text, BOUNDS)
    if not isinstance(body, dict) or body.pop("seal", None) is None or _sealed(body) != text:
        raise ValueError("not as it was written")
    return body


def _sealed(body: dict[str, Any]) -> str:
    # as it will be read: whole numbers that are keys become text
    body = json.loads(bounded.to_json(body, ascii_only=True))
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return bounded.to_json({"seal": digest, **body}, ascii_only=True) + "\n"


def flush_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with naming_file(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


def finished(folder: Path, origin: str, *, verify: bool) -> tuple[list[Part], str]:
    """The parts up to the first that is missing or damaged, and what is wrong with that one, if it ever was there."""
    parts: list[Part] = []
    while True:
        number = len(parts)
        description, documents = named(folder, number, "json"), named(folder, number, "jsonl")
        if not description.exists():
            later = any(int(path.stem) > number for path in description.parent.glob("*.json") if path.stem.isdigit())
            return parts, f"{description}: missing" if later else ""
        try:
            part = Part.model_validate(load(description))
        except (MeristemError, ValueError):
            return parts, f"{description}: damaged"
        if part.origin != origin:
            return parts, ""  # a leftover of an earlier refining, which was given up
        if part.number != number or not documents.is_file():
            return parts, f"{documents}: missing"
        if documents.stat().st_size != part.size or (verify and digest_of(documents) != part.sha256):
            return parts, f"{documents}: damaged"
        parts.append(part)


def discard(folder: Path, first: int) -> None:
    """Delete the parts from a number on, descriptions first, and whatever was left half-written."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    found = sorted((folder / "parts").iterdir(), key=lambda path: (path.suffix == ".json", path.name), reverse=True)
    for path in found:
        if path.name.endswith(PARTIAL) or not path.stem.isdigit() or int(path.stem) >= first:
            path.unlink()


def documents(folder: Path, parts: Iterable[Part]) -> Iterator[Undecided]:
    """The kept documents, in order."""
    for part in parts:
        path = named(folder, part.number, "jsonl")
        try:
            with path.open(encoding="utf-8", errors="surrogatepass", newline="\n") as file:
                for line in file:
                    yield Undecided(**bounded.row(line))
        except OSError as error:
            raise MeristemError(f"{path}: cannot be read ({error.strerror}); run again to make it anew") from None


def _plain(document: Undecided) -> dict[str, Any]:
    """A document as a line has it; a split stands there only where it is known."""
    plain = document._asdict()
    return plain if document.split else {name: value for name, value in plain.items() if name != "split"}


class Writing:
    """The documents of a part on their way to disk."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path = named(folder, number, "jsonl")
        self._beside = self.path.with_name(self.path.name + PARTIAL)
        self._file = self._beside.open("wb")
        self._digest = hashlib.sha256()
        self.size = 0

    def add(self, documents: Iterable[Undecided]) -> None:
        """Write documents."""
        lines = "".join(bounded.to_json(_plain(document)) + "\n" for document in documents)
        data = lines.encode("utf-8", "surrogatepass")
        with naming_file(self.path):
            self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Flush to disk and take the final name; the SHA-256."""
        with naming_file(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self._beside.replace(self.path)
        flush_folder(self.path.parent)
        return self._digest.hexdigest()

    def abandon(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):  # what waits to be written is not wanted, and may have no room
            self._file.close()
        with suppress(OSError):
            self._beside.unlink()


@contextmanager
def sole(folder: Path) -> Iterator[None]:
    """Keep a second refining out of the folder: it waits until the first has ended."""
    with waiting_lock(folder, "refining this corpus"):
        yield


@contextmanager
def waiting_lock(folder: Path, activity: str) -> Iterator[bool]:
    """Hold a folder's lock; whether it was waited for. A process that ends in any way gives its lock up."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        begun, announced, waited = time.monotonic(), False, False
        while not _locked(file):
            waited = True
            if not announced and time.monotonic() > begun + QUIET_WAIT:
                log.warning("%s: another process is %s; waiting until it ends", folder, activity)
                announced = True
            time.sleep(0.05)
        yield waited


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # by process: worker processes do not inherit it
    except (BlockingIOError, PermissionError):  # another has it; a disk without locks says something else
        return False
    return True
