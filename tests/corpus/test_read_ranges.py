"""Read ranges of large files."""

from itertools import pairwise
from pathlib import Path

import pytest

from meristem.corpus import read_ranges
from meristem.corpus.corpus_sources import resolve_sources
from meristem.corpus.read_ranges import plan_ranges
from meristem.corpus.settings import CorpusSettings
from meristem.data.encoding import TextEncoding
from meristem.data.sources import BuiltinSource


def planned(path: Path, data: bytes, **settings) -> list[read_ranges.ReadRange]:
    path.write_bytes(data)
    corpus_settings = CorpusSettings(source=str(path), **settings)
    return list(plan_ranges(resolve_sources(corpus_settings), corpus_settings))


@pytest.mark.parametrize(("document", "separator"), [("line", b"\n"), ("block", b"\n \r\n"), ("auto", b"\n\n")])
def test_large_files_are_cut_between_documents(tmp_path, document, separator):
    data = separator.join(b"document %d of many" % number for number in range(800_000))
    parts = planned(tmp_path / "a.txt", data, document=document)
    assert len(parts) == len(data) // (read_ranges.RANGE_BYTES + 100) + 1 > 3
    assert parts[0].start == 0 and parts[-1].stop == len(data)
    for before, after in pairwise(parts):
        assert before.stop == after.start
        assert data[: after.start].endswith(separator)


def test_a_separator_across_two_windows_is_found(tmp_path):
    window = read_ranges.RANGE_BYTES + (1 << 20)
    data = b"x" * (window - 1) + b"\n\n" + b"y" * 100
    parts = planned(tmp_path / "a.txt", data, document="block")
    assert [(part.start, part.stop) for part in parts] == [(0, window + 1), (window + 1, len(data))]


def test_what_cannot_be_split_is_one_range(tmp_path):
    size = 2 * read_ranges.RANGE_BYTES
    assert len(planned(tmp_path / "a.txt", b"x" * size)) == 1
    assert len(planned(tmp_path / "a.txt", b"lines\n" * (size // 6), document="file")) == 1
    assert len(planned(tmp_path / "a.txt", ("lines\n" * (size // 6)).encode("utf-16"))) == 1
    assert len(planned(tmp_path / "a.txt", b"\x1f\x8b" + b"lines\n" * (size // 6))) == 1
    assert list(plan_ranges([BuiltinSource("pydocs")], CorpusSettings())) == [
        read_ranges.ReadRange(BuiltinSource("pydocs"))
    ]


def test_the_encoding_is_decided_once_for_all_ranges(tmp_path):
    parts = planned(tmp_path / "a.txt", ("白日依山尽\n" * 800_000).encode("gb18030"))
    assert len(parts) > 1
    assert {part.encoding.codec for part in parts if part.encoding} == {"gb18030"}
    assert [part.encoding.repair for part in parts if part.encoding and part.encoding.repair] == ["file in GB18030"]
    marked = planned(tmp_path / "a.txt", ("白日依山尽\n" * 800_000).encode("utf-8-sig"))
    assert [part.encoding for part in marked][:2] == [TextEncoding("utf-8-sig"), TextEncoding("utf-8")]
