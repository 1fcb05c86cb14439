"""Operating system errors (full disk, limits, permissions, bad names) as one-line messages with a remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHOOSE_OTHER_PATH = "choose another location (--out for a run, $MERISTEM_CACHE for the cache)"
RUN_AGAIN = "run the same command again"
START_FEWER = (
    "start fewer (--processes 1 corpus.processes=1 train.dataloader_workers=0 train.threads=1) "
    "or raise the limit (ulimit -u)"
)
FREE_MEMORY = (
    "close other programs, raise the limit (ulimit -v), or make the work smaller (train.batch_tokens, "
    "model.hidden_size, "
    "corpus.processes=1)"
)
REMEDIES: dict[int, str] = {
    errno.ENOSPC: f"free some disk space, then {RUN_AGAIN}",
    errno.EDQUOT: f"delete some of your files or ask for a larger quota, then {RUN_AGAIN}",
    errno.EROFS: f"{CHOOSE_OTHER_PATH}, or mount the disk for writing",
    errno.EACCES: f"change its permissions, or {CHOOSE_OTHER_PATH}",
    errno.EPERM: f"change its permissions, or {CHOOSE_OTHER_PATH}",
    errno.EMFILE: f"raise the limit of open files (ulimit -n 4096), then {RUN_AGAIN}",
    errno.ENFILE: f"close other programs, then {RUN_AGAIN}",
    errno.EFBIG: f"raise the limit of file sizes (ulimit -f unlimited), or {CHOOSE_OTHER_PATH}",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOMEM: FREE_MEMORY,
    errno.EAGAIN: START_FEWER,
    errno.ENOENT: f"check the name; if it was deleted while the command ran, {RUN_AGAIN}",
    errno.ENOTDIR: f"a file is where a folder is needed: move it away, or {CHOOSE_OTHER_PATH}",
    errno.EISDIR: "a folder is where a file is needed: move it away, or choose another name",
    errno.EEXIST: "move it away, or choose another name",
    errno.EIO: f"check the disk and its cable, then {RUN_AGAIN}",
    errno.ESTALE: f"the network disk was remounted: {RUN_AGAIN}",
    errno.ELOOP: "symbolic links form a loop: remove one of them",
    errno.ENODEV: CHOOSE_OTHER_PATH,
    errno.ENXIO: CHOOSE_OTHER_PATH,
}
"""Remedies by error number."""
NOT_DAMAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM})
"""Errors for which an intact file may be unreadable."""
_OUT_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory", "bad_alloc")
_NO_PROCESS = ("can't start new thread", "pthread_create", "Resource temporarily unavailable")
_SHARED_MEMORY = ("shared memory", "/dev/shm", "torch_shm_manager")
_FAILED_WRITE = ("PytorchStreamWriter failed writing", "iostream error", "ios_base::failbit", "file write failed")
_MAX_SHOWN = 120


def system_error_message(error: BaseException) -> str | None:
    """What happened and what to do, for an error of the operating system; None for any other error."""
    if isinstance(error, UnicodeEncodeError) and (name := _find_undecodable(str(error.object))):
        return f"{name!a} is not a UTF-8 name: rename the file or folder"
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "a path contains a NUL character: check the paths in the recipe and the command"
    if isinstance(error, MemoryError):
        return f"not enough memory: {FREE_MEMORY}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{_format_paths(error)}{_format_reason(error)}: {remedy(error)}"
    return _library_message(str(error))


def remedy(error: OSError) -> str:
    """The end of a message about this error: what to do."""
    return REMEDIES.get(error.errno or 0, "check the path, its permissions and the disk")


def is_damage(error: Exception) -> bool:
    """Whether an unreadable file is damaged, as opposed to a limit of this process or missing permission."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in NOT_DAMAGE
    return not any(os.strerror(number) in str(error) for number in NOT_DAMAGE)


@contextmanager
def name_file_in_errors(name: str | Path) -> Iterator[None]:
    """Add the file name to OSErrors of writes: the system sets it only when opening a file fails."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(name)
        raise


def _format_paths(error: OSError) -> str:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return f"{' → '.join(_shorten(name) for name in names)}: " if names else ""


def _format_reason(error: OSError) -> str:
    reason = error.strerror or os.strerror(error.errno or 0)
    return reason[:1].lower() + reason[1:]


def _shorten(name: str) -> str:
    if len(name) <= _MAX_SHOWN:
        return name
    return f"{name[: _MAX_SHOWN // 2]}…{name[-_MAX_SHOWN // 4 :]} ({len(os.fsencode(name)):,} bytes)"


def _find_undecodable(text: str) -> str | None:
    """The first word of a text with bytes that are not UTF-8 (surrogate escapes); None if there is none."""
    match = re.search(r"[^\s\"']*[\ud800-\udfff]+[^\s\"']*", text)
    return _shorten(match[0]) if match else None


def _library_message(text: str) -> str | None:
    """The message for an error that a library (torch, safetensors, h5py, Arrow) raised without an error number."""
    if any(phrase in text for phrase in _NO_PROCESS):
        return f"the limit of threads or processes is reached: {START_FEWER}"
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EFBIG, errno.ENAMETOOLONG, errno.EIO):
        if os.strerror(number) in text:
            return f"{_shorten(_one_line(text))}: {REMEDIES[number]}"
    if any(phrase in text for phrase in _SHARED_MEMORY):
        return f"shared memory is used up ({_one_line(text)}): make /dev/shm larger, or set train.dataloader_workers=0"
    if any(phrase in text for phrase in (*_OUT_OF_MEMORY, os.strerror(errno.ENOMEM))):
        return f"not enough memory: {FREE_MEMORY}"
    if any(phrase in text for phrase in _FAILED_WRITE):
        return f"a file could not be written ({_one_line(text)}): {REMEDIES[errno.ENOSPC]}"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_SHOWN]
