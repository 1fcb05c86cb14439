"""What a person can mend, said so; nothing heavy is imported here, so that the command's help stays quick."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

DISK_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room on the disk"),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "check the disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "see that you may write there"),
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another disk",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit on open files (ulimit -n)"),
}
"""Error number of a disk that refuses → what a person can do about it."""


class MeristemError(Exception):
    """Something a person can mend: what, where, and what to do about it."""


class RecipeError(MeristemError):
    """A recipe that cannot run as written."""


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Errors of the system raised inside name this file: those of write and fsync name none themselves."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def disk_problem(error: OSError) -> str | None:
    """A refusing disk in a sentence: which file, why, what to do; none where the error is of another kind."""
    advice = DISK_ADVICE.get(error.errno or 0)
    if advice is None:
        return None
    where = error.filename2 or error.filename
    place = f"{where}: " if where is not None else ""
    return f"{place}{error.strerror}; {advice}, then run the same command again"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of an error message: the nearest right name, or all of them."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"
