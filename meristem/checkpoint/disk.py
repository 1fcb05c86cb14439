"""Every operation that changes the disk, each its own function: whatever can fail in a save fails here."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meristem.system_errors import naming_file

CHUNK = 8 << 20  # bytes hashed and written at a time: large enough for full speed, small enough to stay in cache

Bytes = bytes | memoryview


@dataclass(frozen=True)
class Digest:
    """What a file must be: its size in bytes and its SHA-256."""

    size: int
    sha256: str


def make_folder(path: Path) -> None:
    """Make a folder that must not exist yet."""
    path.mkdir()


def create(path: Path) -> int:
    """Open a new file for writing; one that exists is an error."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def write(file: int, data: Bytes) -> None:
    """Write all of the data, however little the system takes at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest):]


def sync(file: int) -> None:
    """Return only when the file is on the disk itself."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # fsync stops at the drive's cache there
    else:
        os.fsync(file)


def close(file: int) -> None:
    """Close a file; some network disks report a failed write only here."""
    os.close(file)


def sync_folder(path: Path) -> None:
    """Return only when the names in a folder are on the disk itself."""
    file = os.open(path, os.O_RDONLY)
    try:
        with naming_file(path):
            os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot sync a folder at all
            raise
    finally:
        os.close(file)


def rename(old: Path, new: Path) -> None:
    """Give a file or folder a new name in one indivisible act; a file that had the name is replaced."""
    old.rename(new)


def unlink(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def remove_folder(path: Path) -> None:
    """Remove an empty folder."""
    path.rmdir()


def store(path: Path, chunks: Iterable[Bytes]) -> Digest:
    """Write a new file through to the disk, and hash the bytes as they leave memory."""
    sha, size = hashlib.sha256(), 0
    file = create(path)
    with naming_file(path):
        try:
            for chunk in chunks:
                sha.update(chunk)
                write(file, chunk)
                size += len(chunk)
            sync(file)
        except BaseException:
            with contextlib.suppress(OSError):  # the first failure is the one to tell
                close(file)
            raise
        close(file)
    return Digest(size, sha.hexdigest())


def replace(path: Path, chunks: Iterable[Bytes]) -> None:
    """Put a whole new file in the place of an old one: a reader sees the one or the other, never a part."""
    beside = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        unlink(beside)
    try:
        store(beside, chunks)
        rename(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            unlink(beside)
        raise
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a folder with all it holds, or a file; of a link only the link."""
    if path.is_symlink() or not path.is_dir():
        unlink(path)
        return
    for entry in sorted(path.iterdir()):
        remove(entry)
    remove_folder(path)


def read(path: Path) -> Iterator[memoryview]:
    """The bytes of a regular file, chunk by chunk; each is gone when the next one comes."""
    with regular(path) as file:
        buffer = memoryview(bytearray(min(CHUNK, os.fstat(file).st_size + 1)))
        while count := os.readv(file, [buffer]):
            yield buffer[:count]


def read_back(path: Path) -> Digest:
    """The digest of what the disk holds, not of what the system remembers having written."""
    if sys.platform == "linux":
        with regular(path) as file:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return digest(path)


def digest(path: Path) -> Digest:
    """Size and SHA-256 of a file."""
    sha, size = hashlib.sha256(), 0
    for chunk in read(path):
        sha.update(chunk)
        size += len(chunk)
    return Digest(size, sha.hexdigest())


@contextlib.contextmanager
def regular(path: Path) -> Iterator[int]:
    """Open a file for reading; a link, a pipe or a device is an error, and never waited for."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield file
    finally:
        os.close(file)
