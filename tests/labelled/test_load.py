"""Loading of splits: held-out validation, subsampling, leaks, contradictions, empty and invalid rows."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled.load import DatasetSplits, load_samples, load_splits, stream_samples
from meristem.labelled.settings import DataSettings


def table(folder: Path, name: str, rows: list[tuple[str, str]]) -> str:
    path = folder / name
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return str(path)


def load_rows(folder: Path, rows: list[tuple[str, str]], **options: object) -> DatasetSplits:
    return load_splits(DataSettings(train=table(folder, "train.tsv", rows), **options), "text")


def texts_of(samples: list[Sample]) -> list[str]:
    return [sample.inputs["text"] for sample in samples]


ROWS = [(f"text number {n}", "ab"[n % 2]) for n in range(200)]


def test_the_held_out_share_depends_on_the_seed_alone(tmp_path):
    first = load_rows(tmp_path, ROWS)
    assert len(first.samples["validation"]) == 20 and len(first.samples["train"]) == 180
    assert Counter(sample.gold for sample in first.samples["validation"]) == {"a": 10, "b": 10}
    rows = load_rows(tmp_path, ROWS[::-1])
    assert set(texts_of(rows.samples["validation"])) == set(texts_of(first.samples["validation"]))
    other = load_rows(tmp_path, ROWS, seed=1)
    assert set(texts_of(other.samples["validation"])) != set(texts_of(first.samples["validation"]))
    assert (
        list(first.samples) == ["train", "validation"]
        and "validation" not in load_rows(tmp_path, ROWS, held_out=0).samples
    )


def test_duplicates_are_on_one_side_of_the_split(tmp_path):
    rows = [(f"text  {'Again' if n % 2 else 'again'} {n // 4}", "ab"[n // 4 % 2]) for n in range(200)]
    splits = load_rows(tmp_path, rows, held_out=0.3)
    sides = [{text.lower() for text in texts_of(splits.samples[name])} for name in ("train", "validation")]
    assert not sides[0] & sides[1] and len(sides[1]) == 15
    assert len(splits.samples["validation"]) == 60
    assert not any("leak" in notice for notice in splits.notices)


def test_the_only_sample_of_a_label_stays_in_training(tmp_path):
    rows = [*ROWS[:40], ("rare text", "RARE")]  # sorted first, where evenly spread places begin
    for seed in range(8):
        assert "RARE" in {sample.gold for sample in load_rows(tmp_path, rows, held_out=0.5, seed=seed).samples["train"]}


def test_a_limit_draws_every_label(tmp_path):
    rows = [(f"text {n}", "often" if n % 50 else f"rare{n // 50}") for n in range(300)]
    splits = load_rows(tmp_path, rows, limit=20, held_out=0)
    assert len(splits.samples["train"]) == 20
    assert {sample.gold for sample in splits.samples["train"]} == {"often", *(f"rare{n}" for n in range(6))}
    assert texts_of(splits.samples["train"]) == sorted(
        texts_of(splits.samples["train"]), key=lambda text: int(text.split()[1])
    )
    assert texts_of(load_rows(tmp_path, rows, limit=20, held_out=0).samples["train"]) == texts_of(
        splits.samples["train"]
    )
    assert texts_of(load_rows(tmp_path, rows, limit=20, held_out=0, seed=1).samples["train"]) != texts_of(
        splits.samples["train"]
    )
    assert len(load_rows(tmp_path, rows, limit=3, held_out=0).samples["train"]) == 3
    balanced = Counter(sample.gold for sample in load_rows(tmp_path, ROWS, limit=50, held_out=0).samples["train"])
    assert balanced == {"a": 25, "b": 25}


def test_leaks_are_counted_with_both_locations(tmp_path):
    test = table(tmp_path, "test.tsv", [(f"  TEXT number  {n}", "a") for n in range(6)] + [("new", "b")])
    rows = load_rows(tmp_path, ROWS[:20], test=test, held_out=0)
    train = tmp_path / "train.tsv"
    assert rows.notices == [
        "leak: 6 of 7 test samples are also in training, 3 of them with another label: "
        f"{test}:2 is {train}:2; {test}:3 is {train}:3; {test}:4 is {train}:4 and 3 more"
    ]
    clean = table(tmp_path, "clean.tsv", [("new", "b")])
    assert load_rows(tmp_path, ROWS[:20], test=clean, held_out=0).notices == []


def test_contradicting_labels_are_reported(tmp_path):
    rows = load_rows(tmp_path, [("Same", "a"), ("other", "b"), ("same ", "b"), ("other", "b")], held_out=0)
    train = tmp_path / "train.tsv"
    assert rows.notices == [f"training samples repeated with another label: 1 ({train}:2 and {train}:4)"]


def test_empty_texts_are_dropped_and_reported(tmp_path):
    rows = load_rows(tmp_path, [("a", "x"), (" ", "y"), ("b", "y"), ("", "x"), ("", "x"), ("", "y")], held_out=0)
    train = tmp_path / "train.tsv"
    assert texts_of(rows.samples["train"]) == ["a", "b"]
    assert rows.notices == [f"dropped from train, empty text: 4 ({train}:3, {train}:5, {train}:6 and 1 more)"]
    with pytest.raises(MeristemError, match=r"data\.train: no samples in .*empty text: 1 \(.*train\.tsv:2"):
        load_rows(tmp_path, [(" ", "x")])


def test_a_missing_label_is_reported(tmp_path):
    with pytest.raises(MeristemError, match=r"train\.tsv:3: no label in column 'label'"):
        load_rows(tmp_path, [("a", "x"), ("b", " "), ("c", "y")])
    with pytest.raises(MeristemError, match=r"and 5 more; by reason: 10 no label in column"):
        load_rows(tmp_path, [("b", "")] * 10)
    path = tmp_path / "unlabelled.tsv"
    path.write_text("index\tsentence\n0\ta\n")
    with pytest.raises(
        MeristemError, match=r"which column holds the label\? Columns: index, sentence\. Set data\.label="
    ):
        load_samples(str(path), DataSettings(), "text")


def test_an_empty_file_and_no_file(tmp_path):
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(MeristemError, match=r"a\.tsv: empty file"):
        load_splits(DataSettings(train=f"{tmp_path}/a.tsv"), "text")
    (tmp_path / "b.tsv").write_text("text\tlabel\n")
    with pytest.raises(MeristemError, match=r"data\.train: no samples in .*b\.tsv: the file is empty"):
        load_splits(DataSettings(train=f"{tmp_path}/b.tsv"), "text")
    with pytest.raises(MeristemError, match=r"data\.train: missing"):
        load_splits(DataSettings(), "text")


def test_the_tag_scheme_is_detected_over_all_splits(tmp_path):
    for name, text in [("train", "a\tB-X\nb\tE-X\n"), ("test", "c\tI-X\n")]:
        (tmp_path / f"{name}.conll").write_text(text)
    splits = load_splits(
        DataSettings(train=f"{tmp_path}/train.conll", test=f"{tmp_path}/test.conll", held_out=0), "words"
    )
    assert [sample.gold for split in splits.samples.values() for sample in split] == [("B-X", "I-X"), ("B-X",)]
    assert splits.notices == ["tags use the BIOES scheme and were converted to BIO (samples changed: 2)"]


def test_files_to_predict_on_are_streamed_with_errors_in_place_of_invalid_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\nbroken\n{"text": ""}\n{"other": 1}\n{"text": "b"}\n')
    streamed = list(stream_samples(str(path), DataSettings(label="label"), "text"))
    assert [
        sample_or_error.inputs["text"]
        if isinstance(sample_or_error, Sample)
        else str(sample_or_error)[len(str(tmp_path)) + 1 :][:30]
        for sample_or_error in streamed
    ] == ["a", "a.jsonl:2: broken JSON (Expect", "a.jsonl:3: empty text", "a.jsonl:4: no value in column ", "b"]


def test_built_in_pairs():
    samples = load_samples("builtin:microworld-pairs?size=4", DataSettings(), "source_target")
    assert len(samples) == 4 and all(sample.gold[0] for sample in samples)


def test_seventy_thousand_lines_take_about_a_second(tmp_path):
    rows = [(f"a film of number {n} that goes on and on , with {n % 977} people", str(n % 2)) for n in range(67_000)]
    path = table(tmp_path, "train.tsv", rows)
    start = time.process_time()
    splits = load_splits(DataSettings(train=path, test=path), "text")
    assert sum(map(len, splits.samples.values())) == 134_000
    assert time.process_time() - start < 10  # measured: 2.0 s for twice the lines, leak detection included


def test_json_locations_are_line_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "\n" + json.dumps({"text": "a\u2028b", "label": "x"}) + "\n\n" + json.dumps({"text": "c", "label": "y"})
    )
    assert [sample.location for sample in load_samples(str(path), DataSettings(), "text")] == [f"{path}:2", f"{path}:4"]
