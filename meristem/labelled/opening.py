"""Files of any ending opened the corpus's way: compression, encoding, damage told by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meristem.corpus.account import Account
from meristem.corpus.compression import CutShort
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream, Unreadable
from meristem.corpus.readers.lines import numbered
from meristem.corpus.source_kinds import COMPRESSIONS, File
from meristem.errors import MeristemError
from meristem.labelled.found import Notes

LARGEST = 1 << 30
"""Characters of a file that must be held whole, since it is one JSON value."""


def file_of(path: Path) -> File:
    """A file by its last ending that is not a compression."""
    if not path.is_file():
        raise MeristemError(f"{path}: a pipe, a device or a socket, not a file; save what it gives to a file first")
    endings = [suffix.lower() for suffix in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    return File(path, endings[-1] if endings else "", compression, path.stat().st_size)


@contextmanager
def readable(file: File, notes: Notes) -> Iterator[Account]:
    """While a file is read: what was mended becomes a notice, what cannot be read an error."""
    account = Account()
    try:
        yield account
    except Unreadable as error:
        raise MeristemError(f"{file.name}: {error}") from None
    except CutShort as error:
        raise MeristemError(f"{file.name}: {error}; nothing of it was used, get the file again") from None
    finally:
        for warning in account.warnings:
            notes.say(warning)


def texts(file: File, notes: Notes) -> Iterator[str]:
    """The text of a file in chunks."""
    with readable(file, notes) as account:
        yield from decoded(Stream(file, account), account)


def text(file: File, notes: Notes) -> str:
    """The whole text of a file."""
    parts, characters = [], 0
    for part in texts(file, notes):
        characters += len(part)
        if characters > LARGEST:
            raise MeristemError(f"{file.name}: more than {LARGEST:,} characters in one value; write it as JSON lines")
        parts.append(part)
    return "".join(parts)


def head(file: File) -> str:
    """Whole lines from the beginning of a file, about a MiB of them."""
    with readable(file, Notes()) as account:
        stream = Stream(file, account)
        whole, begun = stream.whole, next(decoded(stream, account))
    return begun if whole else begun[: begun.rfind("\n") + 1] or begun


def lines(file: File, notes: Notes) -> Iterator[tuple[int, str]]:
    """Each line with its number."""
    for number, line in numbered(texts(file, notes)):
        if line is None:
            raise MeristemError(f"{file.name}:{number}: a line of more than 16 million characters; is this the file?")
        yield number, line
