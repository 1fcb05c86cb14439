"""Content digests of source files, remembered in the cache: a file whose content changed behind an equal size and
modification time is noticed.

`cp -p`, `rsync -t` and `touch -r` set a modification time, but no program sets the inode change time (ctime). As long
as size, modification time, change time and inode are those remembered, the content is not read again: a corpus costs
one `stat` a file. What is new or differs is hashed, which takes about a hundredth of the time of tokenising it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from meristem.corpus.cache_folder import cache_dir
from meristem.data.file_search import displayed_name
from meristem.utils import untrusted_files

BOUNDS = untrusted_files.ParseLimits(max_bytes=1 << 29, max_items=1 << 25, max_objects=1 << 24)
"""Of one folder's records: some millions of files."""
UNREADABLE = "unreadable"
SETTLED = 2 * 10**9
"""Nanoseconds after its last change from which a digest is believed: a change within one tick of the file system's
clock leaves the change time as it is."""


class FileContentRecord(BaseModel):
    """What was seen of one file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    status: list[int]
    """Size, modification time, change time and inode when the content was last hashed; empty where that was so soon
    after a change that another one might have the same times."""
    content: str
    """The digest of the content then."""
    first: dict[str, str]
    """Size and modification time → the content that was first seen with them."""


@dataclass
class FileContents:
    """The records of the files of some folders; `save` writes those that have changed."""

    _folders: dict[Path, dict[str, FileContentRecord]] = field(default_factory=dict)
    _changed: set[Path] = field(default_factory=set)

    def key(self, path: Path) -> list[str | int | None]:
        """Path, size and modification time; and the content, where another one was seen with these three before."""
        path = path.resolve()
        facts = path.stat()
        plain: list[str | int | None] = [displayed_name(path), facts.st_size, facts.st_mtime_ns]
        records = self._records(path.parent)
        record = records.get(displayed_name(path.name))
        status = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
        size_and_time = f"{facts.st_size} {facts.st_mtime_ns}"
        if record is None or record.status != status or size_and_time not in record.first:
            now = time.time_ns()
            first = {} if record is None else record.first
            content = _digest(path)
            first.setdefault(size_and_time, content)
            settled = now > facts.st_ctime_ns + SETTLED
            record = FileContentRecord(status=status if settled else [], content=content, first=first)
            records[displayed_name(path.name)] = record
            self._changed.add(path.parent)
        return plain if record.content == record.first[size_and_time] else [*plain, f"content {record.content}"]

    def save(self) -> None:
        """Write what has changed; a cache that cannot be written is told of by whatever needs it next."""
        for folder in self._changed:
            body = {name: record.model_dump() for name, record in self._folders[folder].items()}
            with suppress(OSError):
                _replace(_record_path(folder), untrusted_files.to_json(body, ascii_only=True))
        self._changed.clear()

    def _records(self, folder: Path) -> dict[str, FileContentRecord]:
        if folder not in self._folders:
            self._folders[folder] = _load(_record_path(folder))
        return self._folders[folder]


def _record_path(folder: Path) -> Path:
    name = hashlib.blake2b(displayed_name(folder).encode(), digest_size=10).hexdigest()
    return cache_dir() / "files" / f"{name}.json"


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:  # the reader counts it as unreadable; readable it would be another text
        return UNREADABLE


def _load(path: Path) -> dict[str, FileContentRecord]:
    """The records of one folder; none where there are none, or where they are damaged."""
    if not path.is_file():
        return {}
    try:
        body: Any = untrusted_files.parse_strict_json(path.read_bytes(), BOUNDS)
        return {name: FileContentRecord.model_validate(record) for name, record in body.items()}
    except (OSError, ValueError, ValidationError, AttributeError):
        return {}


def _replace(path: Path, text: str) -> None:
    """Write beside and rename, each process under a name of its own: several may look at the same folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=f".{path.stem}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
