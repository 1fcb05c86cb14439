"""Claims: the built-in files, a whole claim of tiny models, plugins, and verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_runner import Meristem
from rich.console import Console

import meristem as meristem_package
from meristem.compare import claim_settings
from meristem.compare.cells import measure_name, pretrain_cells, task_cells
from meristem.compare.claim_results import ClaimResult, ExpectationResult, adjust_p_values
from meristem.compare.claim_settings import DEFAULT_DATA, claim_comparisons, claim_files, read_claim
from meristem.compare.statistics import compare_paired
from meristem.compare.train_cell import resolve_pretrain_cell, resolve_task_cell
from meristem.config.errors import MeristemError, RecipeError

pytestmark = pytest.mark.usefixtures("small_peak")
DATA = {**DEFAULT_DATA, "minimal_pairs": "pairs.jsonl", "word_vectors": "vectors.txt"}
TINY = {"model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "model.max_length": 32}
TEXT = "builtin:microworld-en?size=60"


@pytest.mark.parametrize("name", claim_files())
def test_a_claim_of_the_package_can_be_run(name: str, tmp_path: Path) -> None:
    claim = read_claim(name)
    comparisons = claim_comparisons(claim, DATA)
    for comparison in comparisons.values():
        assert comparison.seeds == 3
        for cell in pretrain_cells(comparison, {}):
            if cell.seed == 0:
                resolve_pretrain_cell(cell, comparison)
        for cell in task_cells(comparison):
            if cell.seed == 0 and cell.start is None:
                resolve_task_cell(cell, comparison, tmp_path)
    for expectation in claim.expected:
        for contrast in expectation.contrasts:
            cells = task_cells(comparisons[contrast.comparison])
            known = {measure_name(cell.task, cell.labels) for cell in cells if cell.task is not None}
            for measure in (contrast.measure, contrast.than_measure or contrast.measure):
                assert measure.partition("@")[0].partition(":")[0] in {*known, "run", "pairs"}


def tiny_claim(folder: Path) -> Path:
    """A claim whose second arm is fine-tuned from scratch."""
    task = {
        "name": "sentiment", "task": "classification", "data": "{sentiment}", "labels": [16], "all_labels": False,
        "settings": {"train.steps": 3, "train.batch_samples": 8, "data.validation": None, "data.held_out": 0.1},
    }  # fmt: skip
    arms = {
        "pretrained": {"recipe": "gpt2-mini"},
        "scratch": {"runs_of": "pretrained", "task_settings": {"from.load": "nothing"}},
    }
    settings = {**TINY, "tokenizer.vocab_size": 300, "train.batch_tokens": 512, "train.precision": "float32"}
    contrast = {"better": "pretrained", "than": "scratch"}
    claim = {
        "title": "Pretraining", "paper": "nobody", "sentence": "It helps.", "figure": "1 against 0", "scale": "tiny",
        "comparisons": {
            "main": {"source": "{text}", "budget": {"steps": 2}, "settings": settings, "arms": arms, "tasks": [task]}
        },
        "expected": [
            {"says": "better", "measure": "sentiment-16", **contrast},
            {"says": "more on long texts", "measure": "sentiment-16:accuracy@long", **contrast,
             "more_than": {"measure": "sentiment-16:accuracy@short"}},
            {"says": "the same runs", "measure": "run:bits_per_byte", **contrast},
        ],
    }  # fmt: skip
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(claim))
    return file


def sentiment_data() -> dict[str, str]:
    return {
        "train": "builtin:microworld-sentiment?size=60&seed=1",
        "test": "builtin:microworld-sentiment?size=40&seed=3",
    }


def test_a_whole_claim(tmp_path: Path, meristem: Meristem) -> None:
    file = tiny_claim(tmp_path)
    data = {"text": TEXT, "sentiment": sentiment_data()}
    report = meristem_package.compare_claims(
        [str(file)], data=data, seeds=2, out=tmp_path / "out", console=Console(quiet=True)
    )
    (result,) = report.results
    better, longer, same = result.expectations
    assert (better.difference.seeds, result.seeds, result.budgets) == (2, 2, {"main": "2 steps"})
    assert (same.difference.mean_difference, same.verdict) == (0.0, "not decided")
    assert better.better_mean is not None and longer.difference.mean_difference is not None
    assert result.flops > 0
    page = (tmp_path / "out" / "claims.md").read_text()
    assert "| better |" in page and "The paper: 1 against 0." in page
    given = [f"data.sentiment.{split}={source}" for split, source in sentiment_data().items()]
    again = meristem(
        "compare", "--claims", file, TEXT, *given, "--out", tmp_path / "out", "--seeds", 2, "--parallel", 1, "--json"
    )
    assert again.code == 0 and "Job" not in again.err, again.err
    assert again.answers[0] == json.loads((tmp_path / "out" / "claims.json").read_text())
    assert again.answers[0]["claims"][0]["expected"] == json.loads(
        json.dumps(report.to_dict()["claims"][0]["expected"])
    )


def expectation(values: list[float], obstacles: tuple[str, ...] = ()) -> ExpectationResult:
    paired = compare_paired(values, [0.0] * len(values), lower_is_better=False)
    return ExpectationResult(says="", better_mean=0.0, than_mean=0.0, difference=paired, obstacles=obstacles)


def test_verdicts_follow_p_values_adjusted_over_all_claims(tmp_path: Path) -> None:
    claim = read_claim(str(tiny_claim(tmp_path)))

    def verdicts(*expectations: ExpectationResult) -> tuple[list[str], str]:
        result = ClaimResult(
            name="", claim=claim, expectations=expectations, seeds=3, budgets={}, minutes=0, flops=0
        )  # fmt: skip
        (adjusted,) = adjust_p_values([result])
        return [of.verdict for of in adjusted.expectations], adjusted.verdict

    clear, weak, none = [1.0, 1.01, 1.02], [1.0, 1.3, 0.7], [1.0, -1.0, 0.2]
    assert verdicts(expectation(clear)) == (["holds"], "holds")
    assert verdicts(expectation(weak)) == (["holds"], "holds")
    # the same difference among others that cannot be told apart
    assert verdicts(expectation(weak), expectation(none), expectation(none))[0][0] == "cannot be told apart"
    assert verdicts(expectation([-value for value in clear]), expectation(clear))[1] == "does not hold"
    assert verdicts(expectation(clear, ("leak",)), expectation(clear)) == (["not decided", "holds"], "not decided")
    assert verdicts(expectation([1.0, 1.0])) == (["not decided"], "not decided")


def test_wrong_claims_are_refused(tmp_path: Path, meristem: Meristem) -> None:
    listed = meristem("compare", "--claims", "list")
    assert listed.out.startswith("attention_by_length") and len(listed.out.splitlines()) == len(claim_files())
    for words, message in (
        (["mask_rat"], "neither a claim nor a file, did you mean mask_rate"),
        (["word_vectors"], "give data.word_vectors="),
        (["none.yaml"], "none.yaml"),
        (["mask_rate", "data.sentiment=a.tsv", "data.sentiment.test=b.tsv"], "give data.sentiment.train"),
    ):
        result = meristem("compare", "--claims", *words)
        assert (result.code, message in result.err) == (2, True), result.err
    claim = yaml.safe_load(tiny_claim(tmp_path).read_text())
    for changes, message in (
        ({"expected": [{"says": "", "measure": "run", "better": "pretraind", "than": "scratch"}]}, "did you mean pre"),
        ({"sentences": ""}, "sentences: unknown setting"),
    ):
        file = tmp_path / "wrong.yaml"
        file.write_text(yaml.safe_dump({**claim, **changes}))
        with pytest.raises(RecipeError, match=message):
            read_claim(str(file))


def test_claims_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "their_claims"
    package.mkdir()
    (package / "__init__.py").touch()
    tiny_claim(package)
    monkeypatch.syspath_prepend(tmp_path)

    def declare(value: str) -> None:
        found: Any = [claim_settings.EntryPoint("theirs", value, claim_settings.ENTRY_POINT_GROUP)]
        monkeypatch.setattr(claim_settings, "entry_points", lambda group: found)
        claim_settings.plugin_folders.cache_clear()

    declare("their_claims")
    assert read_claim("tiny").title == "Pretraining"
    declare("not_there")
    with pytest.raises(MeristemError, match="theirs of an unknown distribution"):
        claim_files()
    claim_settings.plugin_folders.cache_clear()
