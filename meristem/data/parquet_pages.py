"""Parquet page headers: the decompressed size of a column's pages, read before any page is decompressed.

The sizes in a file's footer are claims that the library never compares with the pages. The library allocates by the
page headers, so these are the bound that holds. They are structs of Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

UNCOMPRESSED_SIZE, COMPRESSED_SIZE, DATA_V1, DICTIONARY, DATA_V2 = 2, 3, 5, 7, 8
"""Field numbers of a PageHeader (parquet.thrift)."""
NUM_VALUES = 1
ENCODING = {DATA_V1: 2, DICTIONARY: 2, DATA_V2: 4}
DELTA_BYTE_ARRAY = 7
FIRST_READ, MAX_HEADER_BYTES = 1 << 10, 1 << 24
MAX_DEPTH = 16


@dataclass
class ColumnPages:
    """Decompressed size of one leaf column of a file."""

    unpacked_bytes: int = 0
    """Sum over its pages."""
    values: int = 0
    """Values in its data pages, nulls included."""
    largest_page: int = 0
    """Decompressed bytes of its largest page; no single value is larger, however it is encoded."""
    dictionary: bool = False
    front_coded: bool = False
    """Whether values share prefixes (DELTA_BYTE_ARRAY), so that a small page may contain many long ones."""


def column_pages(handle: IO[bytes], metadata: Any, leaf: int) -> ColumnPages:
    """The pages of a leaf column over all row groups; raises ValueError for an invalid page header."""
    pages = ColumnPages()
    end = handle.seek(0, 2)
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(leaf)
        start, first = chunk.data_page_offset, chunk.dictionary_page_offset
        offset = first if first and 0 < first < start else start
        stop = min(offset + chunk.total_compressed_size, end)
        if offset < 0 or chunk.total_compressed_size < 0:
            raise ValueError("a column outside the file")
        while offset < stop:
            offset = _add_page(pages, handle, offset)
    return pages


def _add_page(pages: ColumnPages, handle: IO[bytes], offset: int) -> int:
    """Count one page; returns the offset of the next."""
    header, length = _header_at(handle, offset)
    unpacked, packed = header.get(UNCOMPRESSED_SIZE), header.get(COMPRESSED_SIZE)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("a page without its size")
    pages.unpacked_bytes += unpacked
    pages.largest_page = max(pages.largest_page, unpacked)
    for kind, field in ENCODING.items():
        page_info = header.get(kind)
        if not isinstance(page_info, dict):
            continue
        if kind == DICTIONARY:
            pages.dictionary = True
        else:
            pages.values += max(0, int(page_info.get(NUM_VALUES, 0)))
            pages.front_coded |= page_info.get(field) == DELTA_BYTE_ARRAY
    return offset + length + packed


def _header_at(handle: IO[bytes], offset: int) -> tuple[dict[int, Any], int]:
    size = FIRST_READ
    while True:
        handle.seek(offset)
        data = handle.read(size)
        try:
            return _read_struct(data, 0, MAX_DEPTH)
        except IndexError:  # statistics in a header may be long
            if len(data) < size or size >= MAX_HEADER_BYTES:
                raise ValueError("a page header that does not end") from None
            size *= 16


def _read_struct(data: bytes, offset: int, depth: int) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and its end; raises IndexError if the data end first."""
    if not depth:
        raise ValueError("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[offset]:
        offset += 1
        if delta := kind >> 4:
            number += delta
        else:
            coded, offset = _read_varint(data, offset)
            number = _zigzag_decode(coded)
        fields[number], offset = _read_value(data, offset, kind & 15, depth)
    return fields, offset + 1


def _read_value(data: bytes, offset: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return kind == 1, offset
        case 3:
            return data[offset], offset + 1
        case 4 | 5 | 6:
            coded, offset = _read_varint(data, offset)
            return _zigzag_decode(coded), offset
        case 7:
            return None, _check_end(data, offset + 8)
        case 8:
            length, offset = _read_varint(data, offset)
            return None, _check_end(data, offset + length)
        case 9 | 10:
            return None, _skip_list(data, offset, depth)
        case 12:
            return _read_struct(data, offset, depth - 1)
    raise ValueError("a field that page headers do not have")


def _skip_list(data: bytes, offset: int, depth: int) -> int:
    size, kind = data[offset] >> 4, data[offset] & 15
    offset += 1
    if size == 15:
        size, offset = _read_varint(data, offset)
    for _ in range(size):
        offset = _check_end(data, offset + 1) if kind in (1, 2) else _read_value(data, offset, kind, depth - 1)[1]
    return offset


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise ValueError("a number without end")


def _zigzag_decode(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _check_end(data: bytes, offset: int) -> int:
    if offset > len(data):
        raise IndexError
    return offset
