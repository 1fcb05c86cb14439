"""What the operating system refuses (a full disk, a limit, a name it cannot take), in one sentence with a remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ELSEWHERE = "choose another place (--out for a run, $MERISTEM_CACHE for the cache)"
AGAIN = "run the same command again"
FEWER = "start fewer (--processes 1 corpus.processes=1 train.workers=0 train.threads=1) or raise the limit (ulimit -u)"
MEMORY = (
    "close other programs, raise the limit (ulimit -v), or make the work smaller (train.batch_tokens, model.width, "
    "corpus.processes=1)"
)
REMEDIES: dict[int, str] = {
    errno.ENOSPC: f"make room on the disk, then {AGAIN}",
    errno.EDQUOT: f"delete files of yours or ask for a larger quota, then {AGAIN}",
    errno.EROFS: f"{ELSEWHERE}, or mount the disk for writing",
    errno.EACCES: f"change its permissions, or {ELSEWHERE}",
    errno.EPERM: f"change its permissions, or {ELSEWHERE}",
    errno.EMFILE: f"raise the limit of open files (ulimit -n 4096), then {AGAIN}",
    errno.ENFILE: f"close other programs, then {AGAIN}",
    errno.EFBIG: f"raise the limit of file sizes (ulimit -f unlimited), or {ELSEWHERE}",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOMEM: MEMORY,
    errno.EAGAIN: FEWER,
    errno.ENOENT: f"check the name; if it was deleted while the command ran, {AGAIN}",
    errno.ENOTDIR: f"a file stands where a folder is needed: move it away, or {ELSEWHERE}",
    errno.EISDIR: "a folder stands where a file is needed: move it away, or choose another name",
    errno.EEXIST: "move it away, or choose another name",
    errno.EIO: f"check the disk and its cable, then {AGAIN}",
    errno.ESTALE: f"the network disk was mounted anew: {AGAIN}",
    errno.ELOOP: "links lead to each other: remove one of them",
    errno.ENODEV: ELSEWHERE,
    errno.ENXIO: ELSEWHERE,
}
"""What a person can do, by error number."""
NOT_DAMAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM})
"""Why a good file may not be readable at the moment."""
_OUT_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory", "bad_alloc")
_NO_PROCESS = ("can't start new thread", "pthread_create", "Resource temporarily unavailable")
_SHARED_MEMORY = ("shared memory", "/dev/shm", "torch_shm_manager")
_FAILED_WRITE = ("PytorchStreamWriter failed writing", "iostream error", "ios_base::failbit", "file write failed")
_SHOWN = 120


def system_error_message(error: BaseException) -> str | None:
    """What happened and what to do, if the system is to blame and not the program; else None."""
    if isinstance(error, UnicodeEncodeError) and (name := _undecodable(str(error.object))):
        return f"{name!a} is not a UTF-8 name: rename the file or folder"
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "a path with a NUL character in it is no name of a file: check the paths in the recipe and the command"
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {MEMORY}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{_place(error)}{_reason(error)}: {remedy(error)}"
    return _library_message(str(error))


def remedy(error: OSError) -> str:
    """The end of a message about this error: what a person can do."""
    return REMEDIES.get(error.errno or 0, "check the path, its permissions and the disk")


def is_damage(error: Exception) -> bool:
    """Whether a file that could not be read is at fault, and not a limit of this process or a permission."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in NOT_DAMAGE
    return not any(os.strerror(number) in str(error) for number in NOT_DAMAGE)


@contextmanager
def naming_file(place: str | Path) -> Iterator[None]:
    """Give an OSError of a write the name of what was written: the system names files only when they are opened."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(place)
        raise


def _place(error: OSError) -> str:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return f"{' → '.join(_shortened(name) for name in names)}: " if names else ""


def _reason(error: OSError) -> str:
    reason = error.strerror or os.strerror(error.errno or 0)
    return reason[:1].lower() + reason[1:]


def _shortened(name: str) -> str:
    if len(name) <= _SHOWN:
        return name
    return f"{name[: _SHOWN // 2]}…{name[-_SHOWN // 4 :]} ({len(os.fsencode(name)):,} bytes)"


def _undecodable(text: str) -> str | None:
    """The word of a text that holds bytes which were no UTF-8."""
    found = re.search(r"[^\s\"']*[\ud800-\udfff]+[^\s\"']*", text)
    return _shortened(found[0]) if found else None


def _library_message(text: str) -> str | None:
    """Errors that libraries raise without a number: torch's, safetensors', h5py's, Arrow's."""
    if any(words in text for words in _NO_PROCESS):
        return f"the system starts no more threads or processes for this user: {FEWER}"
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EFBIG, errno.ENAMETOOLONG, errno.EIO):
        if os.strerror(number) in text:
            return f"{_shortened(_one_line(text))}: {REMEDIES[number]}"
    if any(words in text for words in _SHARED_MEMORY):
        return f"shared memory is used up ({_one_line(text)}): make /dev/shm larger, or set train.workers=0"
    if any(words in text for words in (*_OUT_OF_MEMORY, os.strerror(errno.ENOMEM))):
        return f"there is not enough memory: {MEMORY}"
    if any(words in text for words in _FAILED_WRITE):
        return f"a file could not be written ({_one_line(text)}): {REMEDIES[errno.ENOSPC]}"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]
