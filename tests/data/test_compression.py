"""Streaming gzip and zstd decompression."""

import gzip
import zlib

import pytest
import zstandard

from meristem.data.compression import CHUNK_BYTES, TruncatedFileError, decompress

TEXT = bytes(range(97, 123)) * 200_000  # 5.2 MB


def pack(data: bytes, compression: str) -> bytes:
    return gzip.compress(data) if compression == ".gz" else zstandard.ZstdCompressor().compress(data)


def unpack(data: bytes, compression: str, step: int = 1 << 16) -> tuple[bytes, str]:
    out, error = b"", ""
    try:
        for chunk in decompress((data[index : index + step] for index in range(0, len(data), step)), compression):
            assert 0 < len(chunk) <= CHUNK_BYTES
            out += chunk
    except TruncatedFileError as cut:
        error = str(cut)
    return out, error


@pytest.mark.parametrize("compression", [".gz", ".zst"])
@pytest.mark.parametrize("step", [7, 1000, 1 << 20])
def test_whole_and_several_members(compression, step):
    data = TEXT[:300_000]
    assert unpack(pack(data, compression), compression, step) == (data, "")
    assert unpack(pack(data, compression) * 3, compression, step) == (data * 3, "")


@pytest.mark.parametrize("step", [7, 1 << 20])
def test_zeros_after_gzip_are_padding(step):
    assert unpack(pack(TEXT[:999], ".gz") + bytes(10_000), ".gz", step) == (TEXT[:999], "")


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_truncation_keeps_what_came_before(compression):
    noise = zlib.compress(TEXT) * 50  # hardly compressible, so that the cut falls in the middle
    packed = pack(noise, compression)
    out, error = unpack(packed[: len(packed) // 2], compression)
    assert error == "truncated file"
    assert noise.startswith(out)
    for end in (1, 3, 8):
        assert unpack(packed[:-end], compression)[1] == "truncated file"


def test_damage_is_told_apart_from_truncation():
    packed = bytearray(pack(TEXT, ".gz"))
    packed[-6] ^= 1  # the checksum
    assert unpack(bytes(packed), ".gz")[1] == "damaged file"
    assert unpack(pack(b"good", ".gz") + b"junk after the end", ".gz") == (b"good", "damaged file")
    assert unpack(pack(b"good", ".zst") + b"junk after the end", ".zst") == (b"good", "damaged file")


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_enormous_expansion_stays_bounded(compression):
    size = 7 << 20
    packed = pack(bytes(size), compression)
    num_bytes = 0
    for chunk in decompress(iter([packed]), compression):
        assert len(chunk) <= CHUNK_BYTES
        num_bytes += len(chunk)
    assert num_bytes == size


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_what_unpacks_to_far_more_than_text_is_a_trap(compression):
    out, error = unpack(pack(bytes(60 << 20), compression), compression)
    assert error == "unpacks to more than 100 times its size"
    assert len(out) < 40 << 20
