"""Reader for CSV and TSV."""

import csv

import pytest

from meristem.config.errors import MeristemError
from meristem.data.formats import lines


def test_quotes_newlines_and_short_rows(tmp_path, read_corpus):
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,plain\n2,"with ""quotes"", comma\nand newline"\n\n3\n4,诗\n', encoding="utf-8-sig")
    documents, account = read_corpus(path)
    assert [d.text for d in documents] == ["plain", 'with "quotes", comma\nand newline', "诗"]
    assert [d.location for d in documents] == [f"{path}:{line}" for line in (2, 3, 7)]
    assert account.dropped == {"row too short": 1}
    assert account.warnings == [f"{path}:6: row too short"]


def test_tabs_take_quotes_as_they_are(tmp_path, read_corpus):
    path = tmp_path / "a.tsv"
    path.write_text('sentence\tlabel\n"open quote\t1\nnext\t0\n"he said ""no"""\t1\n')
    assert [d.text for d in read_corpus(path)[0]] == ['"open quote', "next", 'he said "no"']


def test_large_fields_and_one_column(tmp_path, read_corpus):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([["review"], ["word " * 200_000], ["small"]])
    assert [len(d.text) for d in read_corpus(path)[0]] == [999_999, 5]


def test_an_unclosed_quote_is_a_broken_row_not_the_end(tmp_path, read_corpus, monkeypatch):
    path = tmp_path / "a.csv"
    rows = "".join(f"{n},row number {n}\n" for n in range(100))
    path.write_text('id,text\n0,first\n1,"never closed\n' + rows)
    monkeypatch.setattr("meristem.data.csv_dialect.MAX_CELL_CHARS", 200)
    before = csv.field_size_limit(200)
    try:
        documents, account = read_corpus(path)
    finally:
        csv.field_size_limit(before)
    assert documents[0].text == "first"
    assert documents[-1].text == "row number 99"
    assert account.dropped == {"broken row": 1}


def test_overlong_lines_are_counted_wherever_they_are(tmp_path, read_corpus, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_CHARS", 50)
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "x" * 60 + "\ngood\n" + "y" * 60)
    documents, account = read_corpus(path)
    assert [d.text for d in documents] == ["good"]
    assert account.dropped == {"line too long": 2}


def test_unclear_column(tmp_path, read_corpus):
    (tmp_path / "a.csv").write_text("title,review\na,b\n")
    with pytest.raises(MeristemError, match=r"a\.csv:1: which column holds the text\? Columns: title, review"):
        read_corpus(tmp_path / "a.csv")
    assert [d.text for d in read_corpus(tmp_path / "a.csv", text="review")[0]] == ["b"]


@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [
        (";", "utf-8"),
        ("\t", "utf-16"),
        (";", "cp1252"),
        ("|", "utf-8-sig"),
        (",", "utf-16"),
    ],
)
def test_what_spreadsheets_write_into_csv_is_read_as_meant(tmp_path, read_corpus, delimiter, encoding):
    rows = [["id", "text", "stars"], ["1", "Schön, ja; sehr|schön", "5"], ["2", "two\nlines", "1"], ["3", "x", "2"]]
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding=encoding) as handle:
        csv.writer(handle, delimiter=delimiter).writerows(rows)
    documents, account = read_corpus(path)
    assert [d.text for d in documents] == [row[1] for row in rows[1:]]
    assert account.read == account.kept == 3


def test_excel_may_name_the_delimiter_first(tmp_path, read_corpus):
    (tmp_path / "a.csv").write_text("sep=;\nid;text\n1;one, two\n")
    assert [d.text for d in read_corpus(tmp_path / "a.csv")[0]] == ["one, two"]


def test_a_delimiter_inside_the_last_column_loses_nothing(tmp_path, read_corpus):
    (tmp_path / "one.csv").write_text("text\nHello, world\nFine, thanks, and you?\nplain\n")
    (tmp_path / "two.csv").write_text("id,text\n1,Hello, world\n2,plain\n")
    texts = ["Hello, world", "Fine, thanks, and you?", "plain"]
    assert [d.text for d in read_corpus(tmp_path / "one.csv")[0]] == texts
    documents, account = read_corpus(tmp_path / "two.csv")
    assert [d.text for d in documents] == ["Hello, world", "plain"]
    assert account.repaired == {"row with a delimiter in its last column": 1}


def test_a_row_with_too_many_cells_is_dropped_by_name_where_its_text_is_not_last(tmp_path, read_corpus):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nHello, world,1\nplain,0\nmore,1\n")
    documents, account = read_corpus(path)
    assert [d.text for d in documents] == ["plain", "more"]
    assert account.dropped == {"more cells than columns": 1}
    assert account.warnings == [f"{path}:2: more cells than columns"]


def test_a_table_without_a_header_keeps_its_first_row(tmp_path, read_corpus):
    path = tmp_path / "a.csv"
    path.write_text('"A first sentence, long enough to be no name of a column at all."\n"A second one."\n')
    assert len(read_corpus(path)[0]) == 2
    path.write_text("1,A first sentence. It has two.\n2,A second one. Also two.\n")
    with pytest.raises(MeristemError, match="which column holds the text"):
        read_corpus(path)
    assert [d.text for d in read_corpus(path, text="2")[0]] == [
        "A first sentence. It has two.",
        "A second one. Also two.",
    ]
