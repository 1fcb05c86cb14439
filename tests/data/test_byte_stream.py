"""Byte streams of files."""

import gzip

import pytest

from meristem.corpus.accounting import CorpusAccount
from meristem.data.byte_stream import HEAD_BYTES, ByteStream, UnreadableFileError
from meristem.data.compression import TruncatedFileError
from meristem.data.sources import FileSource


def opened(path, data, start=0, stop=None, compression=""):
    path.write_bytes(data)
    account = CorpusAccount()
    return ByteStream(FileSource(path, ".txt", compression, len(data)), account, start, stop), account


def test_head_is_read_at_once_and_given_again(tmp_path):
    data = bytes(range(256)) * (3 * HEAD_BYTES // 256)
    stream, account = opened(tmp_path / "a.txt", data)
    assert stream.head == data[:HEAD_BYTES]
    assert not stream.head_is_all
    assert b"".join(stream.chunks()) == data
    assert account.bytes == len(data)


def test_a_range_and_nothing_else(tmp_path):
    stream, account = opened(tmp_path / "a.txt", b"0123456789", 3, 7)
    assert b"".join(stream.chunks()) == b"3456"
    assert stream.head_is_all
    assert account.bytes == 4


def test_a_break_in_the_head_still_gives_the_head(tmp_path):
    packed = gzip.compress(b"before the break " * 20_000)
    stream, _ = opened(tmp_path / "a.txt.gz", packed[:-9], compression=".gz")
    chunks = stream.chunks()
    assert next(chunks).startswith(b"before the break ")
    with pytest.raises(TruncatedFileError, match="truncated file"):
        next(chunks)


def test_refusals(tmp_path):
    with pytest.raises(UnreadableFileError, match="empty file"):
        opened(tmp_path / "a.txt", b"")
    with pytest.raises(UnreadableFileError, match=r"ends in \.gz, but is not compressed so"):
        opened(tmp_path / "a.txt.gz", b"plain", compression=".gz")
    with pytest.raises(UnreadableFileError, match="cannot be read: No such file"):
        ByteStream(FileSource(tmp_path / "gone.txt", ".txt", "", 10), CorpusAccount())
