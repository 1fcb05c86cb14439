"""Parquet page headers: what the pages of a column unpack to, read before any page is unpacked.

The sizes in a file's footer are claims that the library never compares with the pages. The page headers are what it
allocates by, so that they are the bound that holds. They are structs of Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

UNCOMPRESSED_SIZE, COMPRESSED_SIZE, DATA_V1, DICTIONARY, DATA_V2 = 2, 3, 5, 7, 8
"""Field numbers of a PageHeader (parquet.thrift)."""
NUM_VALUES = 1
ENCODING = {DATA_V1: 2, DICTIONARY: 2, DATA_V2: 4}
DELTA_BYTE_ARRAY = 7
FIRST_READ, LONGEST_HEADER = 1 << 10, 1 << 24
DEPTH = 16


@dataclass
class ColumnPages:
    """What one leaf column of a file unpacks to."""

    unpacked_bytes: int = 0
    """Sum over its pages."""
    values: int = 0
    """Values in its data pages, nulls included."""
    largest_page: int = 0
    """Unpacked bytes of its largest page; no single value is larger, however it is encoded."""
    dictionary: bool = False
    front_coded: bool = False
    """Whether values share prefixes (DELTA_BYTE_ARRAY), so that a small page may hold many long ones."""


def column_pages(handle: IO[bytes], metadata: Any, leaf: int) -> ColumnPages:
    """The pages of a leaf column, over all row groups; a ValueError where what stands there is no page header."""
    found = ColumnPages()
    end = handle.seek(0, 2)
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(leaf)
        start, first = chunk.data_page_offset, chunk.dictionary_page_offset
        at = first if first and 0 < first < start else start
        stop = min(at + chunk.total_compressed_size, end)
        if at < 0 or chunk.total_compressed_size < 0:
            raise ValueError("a column outside the file")
        while at < stop:
            at = _add_page(found, handle, at)
    return found


def _add_page(found: ColumnPages, handle: IO[bytes], at: int) -> int:
    """Count one page; where the next one begins."""
    header, length = _header_at(handle, at)
    unpacked, packed = header.get(UNCOMPRESSED_SIZE), header.get(COMPRESSED_SIZE)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("a page without its size")
    found.unpacked_bytes += unpacked
    found.largest_page = max(found.largest_page, unpacked)
    for kind, field in ENCODING.items():
        described = header.get(kind)
        if not isinstance(described, dict):
            continue
        if kind == DICTIONARY:
            found.dictionary = True
        else:
            found.values += max(0, int(described.get(NUM_VALUES, 0)))
            found.front_coded |= described.get(field) == DELTA_BYTE_ARRAY
    return at + length + packed


def _header_at(handle: IO[bytes], at: int) -> tuple[dict[int, Any], int]:
    size = FIRST_READ
    while True:
        handle.seek(at)
        data = handle.read(size)
        try:
            return _struct(data, 0, DEPTH)
        except IndexError:  # statistics in a header may be long
            if len(data) < size or size >= LONGEST_HEADER:
                raise ValueError("a page header that does not end") from None
            size *= 16


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and where it ends; an IndexError where the data end first."""
    if not depth:
        raise ValueError("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at]:
        at += 1
        if delta := kind >> 4:
            number += delta
        else:
            coded, at = _varint(data, at)
            number = _signed(coded)
        fields[number], at = _value(data, at, kind & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            coded, at = _varint(data, at)
            return _signed(coded), at
        case 7:
            return None, _within(data, at + 8)
        case 8:
            length, at = _varint(data, at)
            return None, _within(data, at + length)
        case 9 | 10:
            return None, _end_of_list(data, at, depth)
        case 12:
            return _struct(data, at, depth - 1)
    raise ValueError("a field that page headers do not have")


def _end_of_list(data: bytes, at: int, depth: int) -> int:
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == 15:
        size, at = _varint(data, at)
    for _ in range(size):
        at = _within(data, at + 1) if kind in (1, 2) else _value(data, at, kind, depth - 1)[1]
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number without end")


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError
    return at
