"""Files that are read from several places (Parquet, Excel, Arrow): the file itself, or a decompressed copy."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.read_counts import ReadCounts

if TYPE_CHECKING:
    from meristem.data.sources import FileSource


def open_seekable(file: FileSource, counts: ReadCounts, signatures: tuple[bytes, ...], kind: str) -> IO[bytes]:
    """The open file, which begins with one of the signatures; the caller closes it."""
    stream = ByteStream(file, counts)
    if not stream.head.startswith(signatures):
        raise UnreadableFileError(f"ends in {file.extension}, but is not {kind}")
    if not file.compression:
        counts.bytes += file.size - len(stream.head)
        return file.path.open("rb")
    unpacked = TemporaryFile()  # noqa: SIM115 (the caller closes it)
    for chunk in stream.chunks():
        unpacked.write(chunk)
    unpacked.seek(0)
    return unpacked
