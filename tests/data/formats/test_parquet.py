"""Reader for Parquet."""

import gzip

import pyarrow
import pyarrow.parquet
import pytest

from meristem.config.errors import MeristemError


@pytest.fixture
def path(tmp_path):
    texts = [f"row {n} 诗" if n % 100 else None for n in range(2_000)]
    table = pyarrow.table({"id": list(range(2_000)), "review": texts})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    return tmp_path / "a.parquet"


def test_rows_and_the_only_column_of_strings(path, read_corpus):
    documents, account = read_corpus(path)
    assert len(documents) == 1_980
    assert (documents[0].text, documents[0].location) == ("row 1 诗", f"{path}#2")
    assert documents[-1].location == f"{path}#2000"
    assert account.dropped == {"no text in the column": 20}
    assert account.bytes == path.stat().st_size


def test_dictionary_columns_and_numbers(tmp_path, read_corpus):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"kind": pyarrow.array(["x", "y", "x"]).dictionary_encode(), "n": [1, 2, 3]})
    pyarrow.parquet.write_table(table, path)
    assert [d.text for d in read_corpus(path, deduplicate=False)[0]] == ["x", "y", "x"]
    with pytest.raises(MeristemError, match="no column 'knid', did you mean kind"):
        read_corpus(path, text="knid")


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.99])
def test_truncated_is_rejected(path, tmp_path, read_corpus, keep):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    (tmp_path / "good.txt").write_text("good")
    documents, account = read_corpus(tmp_path)
    assert [d.text for d in documents] == ["good"]
    assert account.rejected == {"damaged parquet file": 1}


def test_damaged_inside_keeps_the_rest_of_the_corpus(path, tmp_path, read_corpus):
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2_000] = b"\xff" * 2_000
    path.write_bytes(bytes(data))
    (tmp_path / "good.txt").write_text("good")
    documents, account = read_corpus(tmp_path)
    assert documents[-1].text == "good"
    assert account.dropped["damaged file"] + account.rejected["damaged parquet file"] == 1


def test_not_parquet_and_truncated_compression(path, tmp_path, read_corpus):
    packed = gzip.compress(path.read_bytes())
    (tmp_path / "cut.parquet.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "not.parquet").write_text("just text")
    _, account = read_corpus(tmp_path)
    assert account.rejected == {"ends in .parquet, but is not parquet": 1}
    assert account.dropped["truncated file"] == 1
