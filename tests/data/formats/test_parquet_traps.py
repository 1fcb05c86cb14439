"""Parquet files of a few hundred bytes whose rows would fill the memory."""

import pyarrow
import pyarrow.parquet
import pytest

from meristem.config.errors import MeristemError
from meristem.data.compression import RATIO_ERROR
from meristem.data.formats.parquet import ParquetFormat
from meristem.data.read_counts import ReadCounts
from meristem.data.records import ReadOptions
from meristem.data.sources import FileSource
from meristem.labelled.load import load_samples as read_labelled
from meristem.labelled.settings import DataSettings

LONG = "a word " * (1 << 15)
ROWS = 280
"""Repeats that bring a long value to about 60 MiB."""


def _repeated():
    """One long value, and numbers that name it."""
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * ROWS, pyarrow.int32()), pyarrow.array([LONG]))


def _listed():
    return pyarrow.ListArray.from_arrays(pyarrow.array([0, ROWS], pyarrow.int32()), _repeated())


def _write(path, values, **options):
    rest = {"compression": "zstd", "write_statistics": False, "store_schema": False}
    table = pyarrow.table({"text": values, "label": pyarrow.nulls(len(values), pyarrow.string())})
    pyarrow.parquet.write_table(table, path, dictionary_pagesize_limit=1 << 30, **{**rest, **options})


def _varint(number, length=0):
    """A number as Thrift writes it, zigzag, in at least so many bytes."""
    out, number = [], number << 1
    while number > 127 or len(out) + 1 < length:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _write_false_sizes(path):
    """The footer says two bytes where the pages say 48 MiB."""
    _write(path, ["a" * (48 << 20)], use_dictionary=False)
    data = path.read_bytes()
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    foot = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    changed = data[foot:]
    for size in (group.total_byte_size, group.column(0).total_uncompressed_size):
        true = _varint(size)
        assert true in changed
        changed = changed.replace(true, _varint(2, len(true)))
    path.write_bytes(data[:foot] + changed)
    assert pyarrow.parquet.ParquetFile(path).metadata.row_group(0).total_byte_size == 2


TRAPS = {
    "one long value, named by many rows": lambda path: _write(path, _repeated()),
    "one long value, named often in one list": lambda path: _write(path, _listed()),
    "values that only add to the one before": lambda path: _write(
        path, [LONG] * ROWS, use_dictionary=["label"], column_encoding={"text": "DELTA_BYTE_ARRAY"}
    ),
    "lists of values that only add to the one before": lambda path: _write(
        path, [[LONG] * ROWS], use_dictionary=["label"], column_encoding={"text.list.element": "DELTA_BYTE_ARRAY"}
    ),
    "nine million rows without a value": lambda path: _write(path, pyarrow.nulls(9 << 20, pyarrow.string())),
    "sizes in the footer that are false": _write_false_sizes,
}


@pytest.fixture
def memory_pool():
    """What arrow allocates, counted from here on."""
    before = pyarrow.default_memory_pool()
    memory_pool = pyarrow.proxy_memory_pool(before)
    pyarrow.set_memory_pool(memory_pool)
    yield memory_pool
    pyarrow.set_memory_pool(before)


@pytest.fixture(scope="module", params=TRAPS)
def trap(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("trap") / "trap.parquet"
    TRAPS[request.param](path)
    assert path.stat().st_size < 100_000
    return path


def test_a_corpus_stops_at_a_hundred_times_the_size(trap, read_corpus, memory_pool, tmp_path):
    (tmp_path / "good.txt").write_text("good")
    documents, account = read_corpus([str(trap), str(tmp_path / "good.txt")], text="text", deduplicate=False)
    assert documents[-1].text == "good"
    assert account.dropped[RATIO_ERROR] + account.rejected[RATIO_ERROR] == 1
    assert account.characters <= 8 << 20
    assert memory_pool.max_memory() < 40 << 20


def test_labelled_data_are_refused(trap, memory_pool):
    with pytest.raises(MeristemError, match=f"trap.parquet: {RATIO_ERROR}"):
        read_labelled(str(trap), DataSettings(text="text", label="label"), "text")
    assert memory_pool.max_memory() < 40 << 20


def test_lists_are_read_as_they_are(tmp_path):
    numbers = range(700)
    words = [[f"word{n % 99}", None, "诗"] * (n % 5) for n in numbers]
    maps = pyarrow.array([[(f"key{n % 9}", word[0])] if word else None for n, word in enumerate(words)],
                         pyarrow.map_(pyarrow.string(), pyarrow.string()))  # fmt: skip
    records = [{"a.b": [f"x{n % 7}", str(n)], "c": None} if n % 3 else None for n in numbers]
    table = pyarrow.table({"a.words": words, "text": [f"text {n} " * n for n in numbers], "map": maps, "d": records})
    writer_options = ({}, {"use_dictionary": False}, {"data_page_version": "2.0", "compression": "gzip"},
            {"dictionary_pagesize_limit": 200, "data_page_size": 512})  # fmt: skip
    for number, options in enumerate(writer_options):
        path = tmp_path / f"{number}.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=300, write_batch_size=16, **options)
        rows = ParquetFormat(FileSource.from_path(path), ReadOptions(), ReadCounts()).records()
        assert [row.value for row in rows] == table.to_pylist()
