"""CSV, TSV, JSON and Parquet files: dialects, headers, compression, encodings."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings


def write_table(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def texts(path: str, sample_type: str = "text", **options: object) -> list[tuple[object, ...]]:
    samples = load_samples(path, DataSettings(**options), sample_type)
    return [(*sample.inputs.values(), sample.gold) for sample in samples]


def test_a_tsv_has_no_quoting(tmp_path):
    path = write_table(
        tmp_path, "a.tsv", 'sentence\tlabel\n"it begins with a quote\t1\nhe said "no" twice\t0\n"whole"\t1\n'
    )
    assert texts(path) == [('"it begins with a quote', "1"), ('he said "no" twice', "0"), ('"whole"', "1")]


def test_a_tsv_that_a_program_quoted_is_read_as_meant(tmp_path):
    path = tmp_path / "a.tsv"
    rows = [("text", "label"), ('tab\there and "quotes"', "x"), ("two\nlines", "y"), ("plain", "x")]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    assert texts(str(path)) == rows[1:]
    minimal = write_table(tmp_path, "b.tsv", 'text\tlabel\n"he said ""no"""\t1\nplain\t0\n')
    assert texts(minimal) == [('he said "no"', "1"), ("plain", "0")]
    every = write_table(tmp_path, "c.tsv", '"text"\t"label"\n"one"\t"1"\n"two"\t"0"\n')
    assert texts(every) == [("one", "1"), ("two", "0")]


def test_a_csv_has_quotes_newlines_and_its_places(tmp_path):
    path = write_table(tmp_path, "a.csv", 'text,label\r\n"a, b",x\r\n"two\r\nlines, ""q""",y\r\n\r\nlast,x\r\n')
    samples = load_samples(path, DataSettings(), "text")
    assert [(sample.inputs["text"], sample.gold) for sample in samples] == [
        ("a, b", "x"),
        ('two\nlines, "q"', "y"),
        ("last", "x"),
    ]
    assert [sample.location for sample in samples] == [f"{path}:2", f"{path}:3", f"{path}:6"]


def test_csv_by_name_may_be_tabs_or_semicolons(tmp_path):
    ragged = (
        "a\tx\t1\t1\t5.000\tA plane, off.\tAn air plane.\n"
        "a\tx\t1\t4\t3.8\tA, b, c\td\tmore\tmore\nb\tx\t1\t1\t2\tU\tV\n"
    )
    path = write_table(tmp_path, "sts.csv", ragged)
    fields_read = texts(path, "pair", text="6", text_b="7", label="5")
    assert fields_read == [("A plane, off.", "An air plane.", "5.000"), ("A, b, c", "d", "3.8"), ("U", "V", "2")]
    semi = write_table(tmp_path, "semi.csv", "text;label\na, b;x\nc, d, e;y\nf;x\n")
    assert texts(semi) == [("a, b", "x"), ("c, d, e", "y"), ("f", "x")]


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        ("sentence\tlabel\na b\t1\n", True),
        ("utterance_of_user\tkind_of_it\nhello there you\tgreeting\nbye now then\tfarewell\n", True),
        ("great film, really\tpositive\nbad film, sadly\tnegative\nso so it was\tpositive\n", False),
        ("gj04\t1\tOur friends\n", False),
        ("what is it\tquestion\nit is a boat\tanswer\nwho are you\tquestion\n", False),
    ],
)
def test_a_header_is_distinguished_from_data(tmp_path, lines, header):
    path = write_table(tmp_path, "a.tsv", lines)
    first = lines.split("\n")[0].split("\t")
    columns = first if header else [str(number + 1) for number in range(len(first))]
    samples = load_samples(path, DataSettings(text=columns[0], label=columns[1]), "text")
    assert len(samples) == lines.count("\n") - header


def test_a_header_can_be_set(tmp_path):
    path = write_table(tmp_path, "a.tsv", "text\tlabel\none\tx\n")
    assert texts(path, header=False, text="1", label="2") == [("text", "label"), ("one", "x")]


def test_two_columns_without_names(tmp_path):
    path = write_table(
        tmp_path, "a.tsv", "1\ta long and winding text\n0\tanother one, not short\n1\tthe third of them all\n"
    )
    assert texts(path)[0] == ("a long and winding text", "1")


def test_columns_are_asked_for_and_did_you_mean(tmp_path):
    path = write_table(tmp_path, "a.tsv", "alpha\tbeta\tlabel\nx\ty\t1\n")
    with pytest.raises(MeristemError, match=r"which column holds the text\? Columns: alpha, beta, label.*data\.text="):
        texts(path)
    with pytest.raises(MeristemError, match=r"a\.tsv: data\.text: no column 'alpa', did you mean alpha\?"):
        texts(path, text="alpa")
    headerless = write_table(tmp_path, "b.tsv", "x y z\t12\t3\nu v w\t11\t4\n")
    with pytest.raises(MeristemError, match=r"Columns: 1, 2, 3\..*data\.header=true"):
        texts(headerless)


def test_a_row_with_more_cells_than_columns_is_reported(tmp_path):
    path = write_table(tmp_path, "a.tsv", "text\tlabel\none\t1\ntwo\twith a tab\t0\n")
    with pytest.raises(MeristemError, match=r"a\.tsv:3: 3 cells, but the header has 2 columns"):
        texts(path)
    path = write_table(tmp_path, "b.tsv", "text\tlabel\none\t1\ntwo\n")
    with pytest.raises(MeristemError, match=r"b\.tsv:3: no label in column 'label'"):
        texts(path)


def test_an_unclosed_quote_does_not_swallow_the_file(tmp_path):
    path = write_table(tmp_path, "a.csv", 'text,label\n"open,1\n' + "".join(f"t{n},0\n" for n in range(300)))
    with pytest.raises(MeristemError, match=r"a\.csv:2: a quote that is not closed"):
        texts(path)


def test_several_labels_numbers_and_flags(tmp_path):
    path = write_table(tmp_path, "a.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}\n')
    assert texts(path) == [("a", ["x", "y"]), ("b", [])]
    path = write_table(tmp_path, "b.jsonl", '{"text": "a", "score": 0.5}\n{"text": "b", "score": 2}\n')
    assert texts(path) == [("a", 0.5), ("b", 2)]
    path = write_table(tmp_path, "c.csv", "comment_text,toxic,insult\nfine,0,\nbad,1,1\nhm,1,0\n")
    assert texts(path, text="comment_text", label="toxic,insult") == [
        ("fine", []),
        ("bad", ["toxic", "insult"]),
        ("hm", ["toxic"]),
    ]


def test_json_lists_and_lines_in_json_files(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    assert texts(write_table(tmp_path, "a.json", json.dumps(rows, indent=1))) == [("a", "x"), ("b", "y")]
    assert texts(write_table(tmp_path, "b.json", json.dumps({"version": 1, "data": rows}))) == [("a", "x"), ("b", "y")]
    assert texts(write_table(tmp_path, "c.json", "\n".join(map(json.dumps, rows)))) == [("a", "x"), ("b", "y")]
    with pytest.raises(MeristemError, match=r"d\.json:2: broken JSON"):
        texts(write_table(tmp_path, "d.json", '[{"text": "a"},\n{oops}]'))
    with pytest.raises(MeristemError, match=r"e\.jsonl:2: broken JSON"):
        texts(write_table(tmp_path, "e.jsonl", '{"text": "a", "label": "x"}\n{"text": \n'))


def test_compression_encoding_and_several_files(tmp_path):
    lines = "text\tlabel\n好的电影，很好看\tpos\n很差的电影\tneg\n".encode()
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "a.tsv.zst").write_bytes(zstandard.compress(lines))
    (tmp_path / "a.tsv").write_bytes(lines.decode().encode("gb18030"))
    expected = [("好的电影，很好看", "pos"), ("很差的电影", "neg")]
    assert (
        texts(str(tmp_path / "a.tsv.gz"))
        == texts(str(tmp_path / "a.tsv.zst"))
        == texts(str(tmp_path / "a.tsv"))
        == expected
    )
    samples = load_samples((str(tmp_path / "a.tsv.gz"), str(tmp_path / "a.tsv")), DataSettings(), "text")
    assert len(samples) == 4
    assert len(load_samples(str(tmp_path / "a.tsv*"), DataSettings(), "text")) == 6
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress(lines * 1000)[:-20])
    with pytest.raises(MeristemError, match=r"cut\.tsv\.gz: truncated file; none of it was used"):
        texts(str(tmp_path / "cut.tsv.gz"))


def test_missing_files_are_reported_with_similar_names(tmp_path):
    write_table(tmp_path, "train.tsv", "text\tlabel\na\tb\n")
    with pytest.raises(MeristemError, match=r"no such file.*did you mean train\.tsv\?"):
        texts(str(tmp_path / "trian.tsv"))
    with pytest.raises(MeristemError, match=r"is a folder; give the file in it; it holds train\.tsv"):
        texts(str(tmp_path))
    with pytest.raises(MeristemError, match="no columns in this file"):
        texts(write_table(tmp_path, "plain.txt", "only lines\nof text\n"))


def test_parquet_with_label_names(tmp_path):
    import datasets

    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["neg", "pos"]))
    rows = {"text": ["a", "b"], "label": [1, 0]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "a.parquet"))
    samples = load_samples(str(tmp_path / "a.parquet"), DataSettings(), "text")
    assert [(sample.inputs["text"], sample.gold, sample.location) for sample in samples] == [
        ("a", "pos", f"{tmp_path}/a.parquet#1"),
        ("b", "neg", f"{tmp_path}/a.parquet#2"),
    ]


cell = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff"), min_size=1, max_size=30
)
word = cell.map(str.strip).filter(bool)
label = st.sampled_from(["yes", "no", "maybe", "42", "很好"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(word, word, label), min_size=1, max_size=12))
def test_random_tables_read_back_the_same(tmp_path, rows):
    names = ("premise", "hypothesis", "label")
    expected = [({"text": a, "text_b": b}, gold) for a, b, gold in rows]
    tab_separated = "".join("\t".join(row) + "\n" for row in (names, *rows))
    paths = [tmp_path / "t.csv", tmp_path / "t.jsonl", tmp_path / "t.parquet", tmp_path / "quoted.tsv"]
    for path, delimiter in ((paths[0], ","), (paths[3], "\t")):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter).writerows([names, *rows])
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    paths[1].write_text("\n".join(lines), encoding="utf-8", newline="")
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(names, zip(*rows, strict=True), strict=True))), paths[2])
    if not any('"' in cell for row in rows for cell in row):
        paths.append(tmp_path / "t.tsv")
        paths[4].write_text(tab_separated, encoding="utf-8", newline="")
    for path in paths:
        samples: list[Sample] = load_samples(str(path), DataSettings(), "pair")
        assert [(sample.inputs, sample.gold) for sample in samples] == expected, path.name
