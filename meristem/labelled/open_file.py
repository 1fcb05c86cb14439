"""Opening of labelled files with the corpus readers: decompression, encoding detection, errors with the file's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.read.byte_stream import ByteStream, UnreadableFileError
from meristem.corpus.read.compression import TruncatedFileError
from meristem.corpus.read.encoding import decode_stream
from meristem.corpus.read.formats.lines import number_lines
from meristem.corpus.read.source_kinds import COMPRESSIONS, FileSource
from meristem.labelled.rows import ReadNotes

MAX_CHARACTERS = 1 << 30
"""Longest file, in characters, that is read into memory at once because it is a single JSON value."""


def file_from_path(path: Path) -> FileSource:
    """The FileSource of a path: extension without the compression suffix, compression, size."""
    if not path.is_file():
        raise MeristemError(f"{path}: a pipe, a device or a socket, not a file; save its content to a file first")
    endings = [suffix.lower() for suffix in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    return FileSource(path, endings[-1] if endings else "", compression, path.stat().st_size)


@contextmanager
def report_read_errors(file: FileSource, notes: ReadNotes) -> Iterator[CorpusAccount]:
    """Context for reading a file: warnings become notices, unreadable content raises MeristemError."""
    account = CorpusAccount()
    try:
        yield account
    except UnreadableFileError as error:
        raise MeristemError(f"{file.name}: {error}") from None
    except TruncatedFileError as error:
        raise MeristemError(f"{file.name}: {error}; none of it was used; download the file again") from None
    finally:
        for warning in account.warnings:
            notes.add_message(warning)


def iter_text_chunks(file: FileSource, notes: ReadNotes) -> Iterator[str]:
    """The decoded text of a file, in chunks."""
    with report_read_errors(file, notes) as account:
        yield from decode_stream(ByteStream(file, account), account)


def read_text(file: FileSource, notes: ReadNotes) -> str:
    """The decoded text of a file."""
    chunks, characters = [], 0
    for chunk in iter_text_chunks(file, notes):
        characters += len(chunk)
        if characters > MAX_CHARACTERS:
            raise MeristemError(
                f"{file.name}: more than {MAX_CHARACTERS:,} characters in one JSON value; convert it to JSON lines"
            )
        chunks.append(chunk)
    return "".join(chunks)


def read_head(file: FileSource) -> str:
    """Complete lines from the beginning of a file, about 1 MiB."""
    with report_read_errors(file, ReadNotes()) as account:
        stream = ByteStream(file, account)
        is_complete, first_chunk = stream.head_is_all, next(decode_stream(stream, account))
    return first_chunk if is_complete else first_chunk[: first_chunk.rfind("\n") + 1] or first_chunk


def iter_lines(file: FileSource, notes: ReadNotes) -> Iterator[tuple[int, str]]:
    """Each line with its number, from 1."""
    for number, line in number_lines(iter_text_chunks(file, notes)):
        if line is None:
            raise MeristemError(
                f"{file.name}:{number}: a line of more than 16 million characters; is this the right file?"
            )
        yield number, line
