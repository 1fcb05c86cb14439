"""The corpus pipeline: formats, processes, limits, broken files."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.pipeline import CorpusReader, ReadProgress
from meristem.corpus.settings import CorpusSettings

TEXTS = [f"Document number {n}, 第{n}篇。" for n in range(30)]


def packed(path: Path, data: bytes, compression: str) -> Path:
    compressed = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[compression](data)
    path = path.with_name(path.name + compression)
    path.write_bytes(compressed)
    return path


def in_format(ending: str, folder: Path) -> bytes:
    if ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({"n": list(range(30)), "text": TEXTS}), folder / "table")
        return (folder / "table").read_bytes()
    rows = {
        ".txt": lambda: "\n".join(TEXTS),
        ".jsonl": lambda: "\n".join(json.dumps({"n": n, "text": text}) for n, text in enumerate(TEXTS)),
        ".csv": lambda: "n,text\n" + "\n".join(f'{n},"{text}"' for n, text in enumerate(TEXTS)),
        ".tsv": lambda: "n\ttext\n" + "\n".join(f"{n}\t{text}" for n, text in enumerate(TEXTS)),
    }
    return rows[ending]().encode()


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_every_format_and_compression(tmp_path, read_corpus, ending, compression):
    path = packed(tmp_path / f"a{ending}", in_format(ending, tmp_path), compression)
    documents, account = read_corpus(path, document="line")
    assert [d.text for d in documents] == TEXTS
    assert account.splits == {"train": 28, "validation": 1, "test": 1}
    assert account.sources == {str(path): 30}
    assert account.bytes == path.stat().st_size


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """A folder worth a pool: ranges of a large file, duplicates, compression, broken files, skipped ones."""
    folder = tmp_path_factory.mktemp("mixed")
    blocks = [f"Block {n % 9_000}: " + "some words of it " * 55 + "\r\nline two of 第一块" for n in range(12_000)]
    (folder / "a.txt").write_text("\n\n".join(blocks), newline="")
    lines = b'{"text": "dup"}\n{"text": "dup"}\n{bad\n{"text": "x\\u0000y"}'
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
    (folder / "c.txt.gz").write_bytes(gzip.compress(("line of c\n" * 3).encode() * 3_000)[:-20])
    (folder / "d.txt").write_bytes(b"\x1f\x8bnot text")
    (folder / "e.txt").write_bytes(b"")
    (folder / "f.txt").write_bytes(b"caf\xe9")
    (folder / "g.png").write_bytes(b"x")
    (folder / "h.txt").write_text("\n".join(f"Line {n % 7_000}" for n in range(10_000)))
    return folder


def test_the_number_of_processes_changes_nothing(mixed, read_corpus):
    first = read_corpus(mixed, processes=1)
    assert first[1].rejected == {"ends in .txt, but holds gzip data": 1, "empty file": 1}
    assert first[1].skipped == {".png": 1}
    assert first[1].dropped["truncated file"] == first[1].dropped["broken JSON"] == 1
    assert first[1].dropped["duplicate"] > 3_000 + 1 + 8_000 + 3_000
    for processes in (2, 4):
        assert read_corpus(mixed, processes=processes) == first


def test_the_limit_does_not_depend_on_processes_either(mixed, read_corpus):
    first = read_corpus(mixed, processes=1, limit=5_000)
    assert first[1].kept == 5_000
    assert first[1].dropped["over the limit"] > 0
    assert read_corpus(mixed, processes=3, limit=5_000) == first


def test_halves_share_nothing_and_hold_out_what_the_whole_does(tmp_path, read_corpus):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"Line {n}" for n in range(6_000)))
    splits_by_text, *halves = (
        {d.text: d.split for d in read_corpus(path, document="line", half=half)[0]} for half in (None, 0, 1)
    )
    assert halves[0] | halves[1] == splits_by_text and not halves[0].keys() & halves[1].keys()
    assert 2_800 < len(halves[0]) < 3_200 and "test" in halves[0].values()
    assert read_corpus(path, document="line", half=0)[1].dropped == {"in the other half": len(halves[1])}


def test_no_half_leaves_the_key_of_a_corpus_as_it_was():
    full_fields, first, second = (CorpusSettings(half=half).cache_key_fields() for half in (None, 0, 1))
    assert "half" not in full_fields and (first["half"], second["half"]) == (0, 1)


def test_a_pass_can_be_repeated(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\ntwo")
    corpus_reader = CorpusReader(CorpusSettings(source=str(tmp_path), document="line"))
    assert list(corpus_reader) == list(corpus_reader)
    assert (corpus_reader.account.read, corpus_reader.account.kept) == (3, 2)


def test_progress_reaches_its_total(mixed):
    steps: list[ReadProgress] = []
    list(CorpusReader(CorpusSettings(source=str(mixed), processes=2), progress=steps.append))
    assert len(steps) > 20
    assert [step.bytes for step in steps] == sorted(step.bytes for step in steps)
    assert steps[-1].bytes == steps[-1].total
    assert steps[-1].documents > 30_000


def test_duplicates_are_dropped_or_kept_together(tmp_path, read_corpus):
    (tmp_path / "a.txt").write_text("same\nother \nsame\nother")
    documents, account = read_corpus(tmp_path, document="line")
    assert [d.text for d in documents] == ["same", "other"]
    assert account.dropped == {"duplicate": 2}
    documents, account = read_corpus(tmp_path, document="line", deduplicate=False)
    assert [d.text for d in documents] == ["same", "other", "same", "other"]
    assert len({(d.text, d.split) for d in documents}) == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode)),
    ending=st.sampled_from([".txt", ".jsonl", ".csv", ".tsv", ".parquet", ".txt.gz", ".jsonl.zst"]),
    document=st.sampled_from(["auto", "file", "block", "line"]),
    shortest=st.integers(1, 5),
)
def test_whatever_a_file_holds_every_document_is_accounted_for(tmp_path, data, ending, document, shortest):
    path = tmp_path / f"a{ending}"
    path.write_bytes(data)
    corpus_reader = CorpusReader(CorpusSettings(source=str(path), document=document, min_characters=shortest))
    try:
        documents = list(corpus_reader)
    except MeristemError as error:
        assert "which column" in str(error) or "no usable documents" in str(error)
        return
    account = corpus_reader.account
    assert account.read == len(documents) + account.dropped.total()
    assert all(len(d.text) >= shortest and d.text.encode() and "\0" not in d.text for d in documents)


# What must not happen: never a hang, a traceback or silence.


def no_documents_message(source: Path, **settings) -> str:
    with pytest.raises(MeristemError, match="no usable documents") as error:
        list(CorpusReader(CorpusSettings(source=str(source), **settings)))
    return str(error.value)


def test_an_empty_file_is_told(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    assert f"{tmp_path}/a.txt: empty file" in no_documents_message(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text(" \n\n \n")
    assert "0 documents read" in no_documents_message(tmp_path / "a.txt")


def test_no_file_and_no_text_are_told(tmp_path):
    with pytest.raises(MeristemError, match="no such file or folder"):
        list(CorpusReader(CorpusSettings(source=str(tmp_path / "none.txt"))))
    (tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(MeristemError, match=r"no readable files in this folder; it contains \.png \(1\)"):
        list(CorpusReader(CorpusSettings(source=str(tmp_path))))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"\xef\xbb\xbf"),
        ("a.txt", b" \r\n\r\n"),
        ("a.csv", b"text\n"),
        ("a.jsonl", b"\n\n"),
    ],
)
def test_a_file_without_any_text_is_named(tmp_path, read_corpus, name, data):
    (tmp_path / name).write_bytes(data)
    (tmp_path / "b.txt").write_text("some text")
    _, account = read_corpus(tmp_path)
    assert account.rejected == {"no text in it": 1}
    assert account.warnings == [f"{tmp_path / name}: no text in it"]
    with pytest.raises(MeristemError, match="no text in it"):
        read_corpus(tmp_path / name)


def test_one_tiny_document_is_enough_to_read(tmp_path, read_corpus):
    (tmp_path / "a.txt").write_text("x")
    documents, account = read_corpus(tmp_path)
    assert [(d.text, d.split) for d in documents] == [("x", "train")]
    assert account.splits == {"train": 1}


@pytest.mark.parametrize(
    ("data", "text", "repair"),
    [
        (b"caf\xe9 au lait", "café au lait", "file in Windows-1252"),
        (b"a nul\0 byte in some text\0", "a nul byte in some text", "strip controls"),
        (b"\xef\xbb\xbfmarked", "marked", None),
        ("marked 诗".encode("utf-16"), "marked 诗", None),
        ("床前明月光，疑是地上霜。".encode("gbk"), "床前明月光，疑是地上霜。", "file in GB18030"),
    ],
)
def test_odd_bytes_are_mended_and_counted(tmp_path, read_corpus, data, text, repair):
    (tmp_path / "a.txt").write_bytes(data)
    documents, account = read_corpus(tmp_path)
    assert [d.text for d in documents] == [text]
    assert account.repaired == ({repair: 1} if repair else {})


def test_a_truncated_file_keeps_what_came_before(tmp_path, read_corpus):
    lines = "".join(f"line {n} {hash(n) * 2654435761 % 2**32}\n" for n in range(20_000)).encode()
    for ending, pack in ((".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)):
        path = tmp_path / f"a.txt{ending}"
        data = pack(lines)
        path.write_bytes(data[: len(data) * 2 // 3])
        documents, account = read_corpus(path)
        assert 5_000 < len(documents) < 20_000
        assert "\n".join(d.text for d in documents) == lines[: sum(len(d.text) + 1 for d in documents) - 1].decode()
        assert account.dropped == {"truncated file": 1}
        assert account.warnings == [f"{path}: truncated file; the documents before that point are kept"]


@pytest.mark.parametrize(
    ("name", "data", "expected_message"),
    [
        ("a.txt", gzip.compress(b"text", mtime=0), "holds gzip data"),
        ("a.txt.gz", b"plain text", "ends in .gz, but is not compressed so"),
        ("a.txt.zst", gzip.compress(b"text", mtime=0), "ends in .zst, but is not compressed so"),
        ("a.parquet", b"plain text", "ends in .parquet, but is not parquet"),
        ("a.txt", bytes(range(256)) * 50, "holds binary data"),
        ("a.jsonl", b"PK\x03\x04 and so on", "holds zip data"),
        ("a.csv.gz", gzip.compress(bytes(5_000), mtime=0), "holds binary data"),
        ("a.txt.gz", gzip.compress(b"", mtime=0), "empty file"),
    ],
)
def test_a_file_that_is_not_what_its_ending_says_is_rejected(tmp_path, read_corpus, name, data, expected_message):
    (tmp_path / name).write_bytes(data)
    assert f"{tmp_path}/{name}" in (message := no_documents_message(tmp_path)) and expected_message in message
    (tmp_path / "good.txt").write_text("good")
    documents, account = read_corpus(tmp_path)
    assert [d.text for d in documents] == ["good"]
    assert account.rejected.total() == 1


def test_a_file_that_goes_away_is_rejected(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(name)

    def remove(progress: ReadProgress) -> None:
        (tmp_path / "b.txt").unlink(missing_ok=True)

    corpus_reader = CorpusReader(CorpusSettings(source=str(tmp_path)), progress=remove)
    assert [d.text for d in corpus_reader] == ["a"]
    assert corpus_reader.account.rejected == {"cannot be read: No such file or directory": 1}


LONG_LINE = """
import sys, time
from pathlib import Path
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
reading = CorpusReader(CorpusSettings(source=sys.argv[1], deduplicate=False))
longest = total = 0
for document in reading:
    longest, total = max(longest, len(document.text)), total + len(document.text)
# Not getrusage: its peak includes that of the process this one was started from.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(longest, total, int(peak.split()[1]) // 1024, time.process_time())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is told by Linux only")
def test_a_line_of_200_megabytes_costs_no_memory(tmp_path):
    path, unit = tmp_path / "line.txt", b"a line without end "
    path.write_bytes(unit * (200_000_000 // len(unit)))
    run = subprocess.run(
        [sys.executable, "-c", LONG_LINE, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    longest, total, peak, seconds = map(float, run.stdout.split())
    assert longest <= 1_000_000
    assert 199_000_000 < total <= 200_000_000
    assert peak < 400
    assert seconds < 10


def test_account_of_a_mixed_folder_reads_well(mixed, read_corpus):
    account: CorpusAccount = read_corpus(mixed)[1]
    assert "1 files rejected (empty file)" in account.summary()
    assert any("c.txt.gz: truncated file" in warning for warning in account.warnings)
    assert any("b.jsonl.gz:3: broken JSON" in warning for warning in account.warnings)
