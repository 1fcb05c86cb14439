"""The record table's benchmark: documents of its tracks, halves of minimal pairs, result files, the paired t-test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import cells, page, readme_table
from benchmarks.records.measures import select_half, with_half_ties
from benchmarks.records.tracks import DOCUMENT_CHARACTERS, Track, documents, write_source
from meristem.evaluation.minimal_pairs import MinimalPair, PairCounts


def test_documents_keep_every_line_in_order(tmp_path: Path) -> None:
    lines = [f"line {number} " + "x" * 700 for number in range(20)]
    (tmp_path / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    track = Track("t", "a.txt", "lines", {}, {})
    texts = list(documents(track, tmp_path))
    assert [line.strip() for line in lines] == [line for text in texts for line in text.split("\n")]
    assert len(texts) > 1
    assert all(len(text) >= DOCUMENT_CHARACTERS for text in texts[:-1])
    source = write_source(track, tmp_path, tmp_path / "work")
    assert [json.loads(line)["text"] for line in source.read_text().splitlines()] == texts


@pytest.mark.parametrize("document", ["block", "article"])
def test_document_boundaries(tmp_path: Path, document: str) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n\n= c =\n= = d = =\ne\n", encoding="utf-8")
    assert list(documents(Track("t", "a.txt", document, {}, {}), tmp_path)) == ["a\nb", "= c =\n= = d = =\ne"]


def test_halves_are_disjoint_and_complete_in_every_paradigm() -> None:
    pairs = [
        MinimalPair(good=f"{name} {number}", bad="x", phenomenon=name, paradigm=name)
        for number in range(5)
        for name in ("p", "q")
    ]
    development, test = select_half(pairs, "development"), select_half(pairs, "test")
    assert {pair.good for pair in development}.isdisjoint(pair.good for pair in test)
    assert len(development) + len(test) == len(pairs)
    assert [sum(pair.paradigm == "q" for pair in half) for half in (development, test)] == [3, 2]
    assert with_half_ties(PairCounts(pairs=4, correct=1, ties=2)) == 0.5


def _record(label: str, seed: int, loss: float) -> dict[str, Any]:
    suites = {"blimp": {"pairs": 2, "accuracy": 0.5 + seed / 100, "accuracy_ties_half": 0.6, "phenomena": {}}}
    return {
        "track": "baby10m", "label": label, "budget": "minutes=30", "seed": seed, "metrics": {"loss": loss},
        "used": {"steps": 10, "tokens": 1e6}, "pairs": {"development": suites}, "processor": "cpu", "bfloat16": [],
    }  # fmt: skip


def test_paired_test_needs_three_common_seeds_and_finds_a_difference() -> None:
    baseline = [_record("baseline", seed, 4.0 + seed / 10) for seed in range(3)]
    better = [_record("better", seed, 3.9 + seed / 10 + seed / 1000) for seed in range(3)]
    noisy = [_record("noisy", seed, 4.0 + seed / 10 + (-1) ** seed / 10) for seed in range(3)]
    records = [*baseline, *better, *noisy]
    assert page.paired_test(records, "baseline", "better", "loss", "minutes=30").endswith(": differ")
    assert page.paired_test(records, "baseline", "noisy", "loss", "minutes=30").endswith("cannot be told apart")
    assert "2 common seeds" in page.paired_test(records[:5], "baseline", "better", "loss", "minutes=30")
    assert page.measure_of(baseline[1], "blimp") == 0.51


def test_page_has_one_row_for_the_seeds_of_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "records.md")
    text = page.write_page([_record("baseline", seed, 4.0 + seed) for seed in range(3)])
    (row,) = [line for line in text.splitlines() if line.startswith("| baseline")]
    assert "5.000 (4.000–6.000)" in row
    assert "51.0 (50.0–52.0) / 60.0" in row


def test_readmes_show_the_best_recipe_of_each_kind_between_their_markers(tmp_path: Path) -> None:
    causal = [_record("gpt", seed, 3.0) for seed in range(3)]
    for record in causal:
        record["metrics"] = {"loss": 3.0, "bits_per_byte": 1.5}
    worse = [_record("worse", 0, 1.0)]
    worse[0]["pairs"]["development"]["blimp"]["accuracy"] = 0.4
    chinese = {**_record("wide", 0, 2.0), "track": "zhwiki", "pairs": {"development": {}}}
    for name in ("README.md", "README.zh.md"):
        (tmp_path / name).write_text("a\n<!-- records -->\nold\n<!-- /records -->\nb\n", encoding="utf-8")
    readme_table.write_readme_tables([chinese, *worse, *causal, _record("best", 1, 4.0)], tmp_path)
    english, chinese_text = ((tmp_path / name).read_text("utf-8") for name in ("README.md", "README.zh.md"))
    rows = [line for line in english.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[2] for row in rows if "---" not in row] == ["`best`", "`gpt`", "`wide`"]
    assert "1.500 (1.500–1.500) bits per byte | BLiMP 51.0 (50.0–52.0) (dev)" in english
    assert "30 分钟" in chinese_text and english.startswith("a\n") and english.endswith("<!-- /records -->\nb\n")
    (tmp_path / "README.md").write_text("no marker", encoding="utf-8")
    with pytest.raises(SystemExit, match="records"):
        readme_table.write_readme_tables([], tmp_path)


def test_both_readmes_have_the_markers_of_the_record_table() -> None:
    for name in ("README.md", "README.zh.md"):
        assert len(readme_table.MARKED.findall((readme_table.ROOT / name).read_text("utf-8"))) == 1


def test_finished_cell_is_read_and_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CELLS", tmp_path)
    cell = cells.Cell(track="baby10m", label="a", recipe="no-such-recipe", overrides={}, budget="minutes=8", seed=1)
    cells.write_cell(cell.path, {"label": "a"})
    from rich.console import Console

    assert cells.train_cell(cell, tmp_path / "missing", tmp_path, None, Console(quiet=True)) == {"label": "a"}
    assert cell.settings()["train.minutes"] == 8.0
