"""Whole comparisons of tiny models: resuming, adding cells, validity checks and the report."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_runner import COMMAND, Meristem
from rich.console import Console

from meristem import api
from meristem.checkpoint.run_folder import RunFolder
from meristem.compare import cell_jobs
from meristem.compare import run_comparison as runner
from meristem.compare.comparison_settings import (
    ComparedTaskSettings,
    build_comparison,
    comparison_of_recipes,
    split_words,
)
from meristem.compare.item_scores import read_item_scores
from meristem.compare.shared_precision import with_shared_precision
from meristem.compare.split_statistics import split_statistics
from meristem.compare.train_cell import task_recipe
from meristem.config.errors import MeristemError, RecipeError
from meristem.training import precision

TINY = {
    "model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "model.max_length": 32, "tokenizer.vocab_size": 300,
    "train.batch_tokens": 512, "train.threads": 1, "train.precision": "float32",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("small_peak")
RATES = ("train.learning_rate", "train.muon_learning_rate")
SOURCE = "builtin:microworld-en?size=60"


def tiny_comparison(**changes: Any) -> dict[str, Any]:
    return {
        "arms": {"plain": {"recipe": "gpt2-mini"}, "same": {"recipe": "gpt2-mini"}},
        "source": SOURCE, "budget": {"tokens": 2_048}, "seeds": 3, "settings": TINY, **changes,
    }  # fmt: skip


def compare(values: dict[str, Any], out: Path) -> dict[str, Any]:
    """The report as JSON."""
    return runner.run_comparison(build_comparison(values), out, Console(quiet=True)).to_dict()


def without_clock(report: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in report.items() if key != "costs"})


def test_identical_arms_interruptions_and_added_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(
        "".join(f'{{"sentence_good": "The cat {n}.", "sentence_bad": "Cat the {n}."}}\n' for n in range(8))
    )
    values = tiny_comparison(pairs=[str(pairs)])
    whole = compare(values, tmp_path / "whole")
    bits, loss, accuracy = (measure["arms"][1]["comparison"] for measure in whole["measures"])
    for paired in (bits, loss, accuracy):
        assert (paired["verdict"], paired["mean_difference"], paired["p_value"]) == ("cannot be told apart", 0.0, 1.0)
    assert accuracy["item_p"] == 1.0
    assert [paired["adjusted_p"] for paired in (bits, loss, accuracy)] == [1.0, 1.0, 1.0]

    train, started = runner.train_cell, []

    def killed(cell: Any, *rest: Any) -> None:
        started.append(cell.name)
        if len(started) % 2 == 0:
            raise KeyboardInterrupt
        train(cell, *rest)

    monkeypatch.setattr(runner, "train_cell", killed)
    for _ in range(6):
        try:
            parted = compare(values, tmp_path / "parted")
            break
        except KeyboardInterrupt:
            continue
    assert len(started) > len(set(started)) == 6
    assert without_clock(parted) == without_clock(whole)

    started.clear()
    monkeypatch.setattr(runner, "train_cell", lambda cell, *rest: (started.append(cell.name), train(cell, *rest)))
    arms = {**values["arms"], "dropout": {"recipe": "gpt2-mini", "settings": {"model.dropout": 0.5}}}
    larger = compare({**values, "arms": arms}, tmp_path / "parted")
    assert started == ["dropout--s0", "dropout--s1", "dropout--s2"]
    assert larger["differences"]["dropout"] == {"model.dropout": 0.5}


def test_workers_killed_with_their_parent_and_resumed_one_after_the_other(tmp_path: Path) -> None:
    """Over ten seconds, because worker processes start."""
    values = tiny_comparison(seeds=2, settings={**TINY, "train.save_every": 1})
    whole, out = compare(values, tmp_path / "whole"), tmp_path / "killed"
    file = tmp_path / "comparison.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [*COMMAND, "compare", str(file), "--out", str(out), "--parallel", "2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not list(out.glob("cells/*/checkpoints/step-*")) and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    for folder in out.glob("cells/*"):
        _wait_until_free(RunFolder(folder))
    assert len(list(out.glob("cells/*/finished.json"))) < 4
    assert without_clock(compare(values, out)) == without_clock(whole)
    assert (out / "report.csv").read_bytes() == (tmp_path / "whole" / "report.csv").read_bytes()


def _wait_until_free(run: RunFolder) -> None:
    """Return once no process holds the run: workers notice that their parent has died."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with run.hold_lock():
                return
        except MeristemError:
            assert time.monotonic() < deadline, f"{run.path} is still held"
            time.sleep(cell_jobs.CHECK_SECONDS / 5)


def test_a_finished_cell_with_other_settings_is_refused(tmp_path: Path) -> None:
    values = tiny_comparison(seeds=1, budget={"steps": 1})
    compare(values, tmp_path)
    compare(values, tmp_path)
    for changes, key in (({"budget": {"steps": 2}}, "train.steps"), ({"source": "builtin:microworld-en"}, "source")):
        with pytest.raises(MeristemError, match=rf"plain--s0 was trained with other settings .*\({key}\)"):
            compare({**values, **changes}, tmp_path)


def test_arms_that_differ_in_fine_tuning_and_items_of_their_tasks(tmp_path: Path) -> None:
    data = {split: f"builtin:microworld-sentiment?size=60&seed={seed}" for split, seed in (("train", 1), ("test", 3))}
    task = {"name": "sentiment", "task": "classification", "data": data, "labels": [16], "all_labels": False,
            "settings": {"train.steps": 2, "train.batch_samples": 8, "data.held_out": 0.1}}  # fmt: skip
    arms = {
        "pretrained": {"recipe": "gpt2-mini"},
        "untrained": {"runs_of": "pretrained", "task_settings": {"from.load": "nothing"}},
        "from scratch": {
            "task_settings": {f"model.{key}": 2 if key == "layers" else 32 for key in ("layers", "hidden_size")}
        },
    }
    values = tiny_comparison(seeds=1, arms=arms, tasks=[task], budget={"steps": 1})
    report = compare(values, tmp_path)
    assert {path.name for path in (tmp_path / "cells").iterdir()} == {
        "pretrained--s0", *(f"{arm}--s0--sentiment-16" for arm in arms)}  # fmt: skip
    (measure,) = (measure for measure in report["measures"] if measure["name"] == "sentiment-16")
    assert [arm["comparison"] and arm["comparison"]["item_p"] is not None for arm in measure["arms"]] == [
        None,
        True,
        True,
    ]
    assert report["differences"]["untrained"] == {"fine-tuning: from.load": "nothing"}
    scores = read_item_scores(tmp_path / "cells" / "pretrained--s0--sentiment-16")
    assert scores is not None and scores.scores is not None and set(scores.groups) == {"short", "medium", "long"}
    assert scores.scores.mean() == pytest.approx(measure["arms"][0]["mean"]) and scores.leak_share == 0
    same = {**task, "name": "leaked", "data": {**data, "test": data["train"]}}
    leaked = compare(
        {**values, "tasks": [same], "arms": {name: arms[name] for name in ("pretrained", "untrained")}}, tmp_path
    )
    assert "of the words of leaked-16" in [p["message"] for p in leaked["problems"]][-1]


def test_losses_are_compared_only_where_the_same_is_predicted(tmp_path: Path) -> None:
    bert = {"recipe": "roberta-mini", "settings": {"model.layers": 1}}
    changes = {
        "mask rate": {"objective.mask_rate": 0.4}, "maskings": {"objective.num_maskings": 1},
        "tokens": {"tokenizer.vocab_size": 320},
    }  # fmt: skip
    arms = {"masked": bert, **{arm: {**bert, "settings": settings} for arm, settings in changes.items()}}
    report = compare(tiny_comparison(seeds=1, arms=arms, budget={"steps": 1}), tmp_path)
    (loss,) = (measure for measure in report["measures"] if measure["name"] == "loss")
    compared = {arm["arm"] for arm in loss["arms"] if arm["comparison"] is not None}
    assert compared == {"maskings"}


def test_a_task_a_probe_and_learning_rates(tmp_path: Path) -> None:
    rows = [
        (text, label) for text, label in (("good bread", "1"), ("bad soup", "0"), ("fine tea", "1"), ("foul tea", "0"))
    ]
    file = tmp_path / "reviews.tsv"
    file.write_text("text\tlabel\n" + "".join(f"{text} {n}\t{label}\n" for n in range(10) for text, label in rows))
    task = {"data": str(file), "labels": [8], "settings": {"train.steps": 2, "train.batch_samples": 4}}
    values = tiny_comparison(
        seeds=1, learning_rates=[0.01, 1.0], tasks=[task, {**task, "method": "probe", "labels": []}]
    )
    report = compare(values, tmp_path / "out")
    assert [measure["name"] for measure in report["measures"]] == [
        "bits_per_byte", "loss", "reviews-8", "reviews", "reviews-probe"]  # fmt: skip
    assert all(measure["arms"][1]["comparison"]["verdict"] == "not decided" for measure in report["measures"])
    assert report["learning_rates"] == {"plain": 1.0, "same": 1.0}
    assert (tmp_path / "out" / "cells" / "plain--s0--reviews-probe" / "recipe.yaml").read_text().count(
        "train: head"
    ) == 1


def test_unequal_budgets_broken_arms_and_failed_cells_invalidate(tmp_path: Path) -> None:
    values = tiny_comparison(
        seeds=1,
        arms={
            "plain": {"recipe": "gpt2-mini"},
            "more": {"recipe": "gpt2-mini", "settings": {"train.batch_tokens": 4000}},
            "broken": {"recipe": "gpt2-mini", "settings": dict.fromkeys(RATES, 1e-12)},
            "failed": {"recipe": "gpt2-mini", "settings": {"model.max_length": 100_000}},
        },
    )  # fmt: skip
    report = runner.run_comparison(build_comparison(values), tmp_path / "out", Console(quiet=True))
    checks = {(problem.check, problem.arms) for problem in report.problems}
    assert ("unequal budget", ("plain", "more", "broken")) in checks
    assert ("uniform loss", ("broken",)) in checks
    (unfinished,) = (problem for problem in report.problems if problem.check == "unfinished runs")
    assert unfinished.arms == ("failed",) and "1 run not finished (" in unfinished.message
    assert "prove nothing" in report.summary()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "unequal budget" in page and "<script" not in page


def test_a_bad_split_and_a_leak_are_caught(tmp_path: Path) -> None:
    rng = random.Random(0)
    stories = [" ".join("".join(rng.choices("abcdefgh", k=4)) for _ in range(16)) for _ in range(400)]
    files = {
        "train": stories,
        "leak": [f"other {story}" for story in stories[:20]],
        "other": ["一 二 三 四 五 六 七 八 九 十 雨 水 山 风 月"] * 20,
    }
    for name, lines in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    problems = {}
    for name in ("train", "leak", "other"):
        settings = {**TINY, "corpus.deduplicate": False}
        settings |= {} if name == "train" else {"corpus.validation": str(tmp_path / f"{name}.jsonl")}
        values = tiny_comparison(source=str(tmp_path / "train.jsonl"), seeds=1, budget={"steps": 1}, settings=settings)
        report = compare(values, tmp_path / f"out-{name}")
        problems[name] = {problem["check"] for problem in report["problems"]}
    assert "leak between splits" in problems["leak"] - problems["train"]
    assert "validation text differs" in problems["other"] - problems["train"]
    statistics = split_statistics(tmp_path / "out-train" / "cells" / "plain--s0")
    assert statistics is not None
    assert statistics.bigram_loss < statistics.unigram_loss


@pytest.mark.parametrize(
    ("data", "task"),
    [
        ({"train": "tickets.csv", "label": "team"}, "classification"),
        ({"train": "tickets.csv", "text_b": "answer"}, "pair"),
        ({"train": "names.conll", "test": "more.conll"}, "tagging"),
    ],
)
def test_the_task_of_a_file_with_named_columns_is_guessed(data: dict[str, str], task: str) -> None:
    assert task_recipe(ComparedTaskSettings(data=data)) == task


def test_an_unclear_task_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,passage\na,b\n", encoding="utf-8")
    values = {"arms": ["bert-mini", "gpt2-mini"], "tasks": [{"data": {"train": str(tmp_path / "rows.csv"),
                                                                     "question": "question"}}]}  # fmt: skip
    with pytest.raises(RecipeError, match="say which task has question"):
        runner.run_comparison(build_comparison(values), tmp_path / "out", Console(quiet=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", ["label", "data.label"])
def test_a_column_beside_the_file_is_answered_with_where_it_goes(key: str) -> None:
    task = {"data": "tickets.csv", key: "team"}
    with pytest.raises(RecipeError, match=r"data: \{train: tickets\.csv, label: team\}"):
        build_comparison({"arms": ["bert-mini", "gpt2-mini"], "tasks": [task]}, "compare.yaml")


def test_wrong_comparisons_are_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for values, message in (
        ({"arms": ["gpt2-mini"]}, "at least two arms"),
        (tiny_comparison(budget={"tokens": 1, "steps": 1}), "give exactly one of flops"),
        (tiny_comparison(seed=3), "seed: unknown setting"),
        (tiny_comparison(settings={"model.layer": 1}), "model.layer: unknown setting"),
        (tiny_comparison(tasks=["none.tsv"]), "none.tsv: no such file"),
        (tiny_comparison(source="txts/"), "no such file or folder: txts"),
        (tiny_comparison(source=str(tmp_path / "empty")), "no readable files in this folder"),
        (tiny_comparison(arms={"a/b": "gpt2-mini", "c": "gpt2-mini"}), "a name is part of a folder's"),
        (tiny_comparison(arms={"a": "gpt2-mini", "c": {"runs_of": "b"}}), "'b' is no arm with a recipe"),
        (tiny_comparison(arms={"a": "gpt2-mini", "c": {}}), "needs tasks"),
        (tiny_comparison(arms={"a": "gpt2-mini", "c": {"recipe": "bert-mini", "runs_of": "a"}}), "remove one of them"),
    ):
        with pytest.raises((MeristemError, RecipeError), match=message):
            compare(values, tmp_path / "out")
    assert not list(tmp_path.glob("out/cells/*"))
    with pytest.raises(RecipeError, match="neither a recipe nor a file, did you mean bert-mini"):
        split_words(["bert-mimi", "gpt2-mini"])


def test_one_precision_for_all_runs_kept_when_the_timing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speedup = [2.0]
    monkeypatch.setattr(precision, "bfloat16_features", lambda: ["avx512_bf16"])
    monkeypatch.setattr(precision, "product_speedup", lambda hidden_size: speedup[0])
    sizes = {"model.hidden_size": 128, "train.device": "cpu"}
    settings = {key: value for key, value in TINY.items() if key != "train.precision"} | sizes
    values = tiny_comparison(seeds=1, settings=settings, budget={"steps": 1})
    assert compare(values, tmp_path / "out")["settings"]["precision"] == "bfloat16"
    speedup[0] = 1.0
    larger = {**values, "arms": {**values["arms"], "added": {"recipe": "modern-mini"}}}
    assert compare(larger, tmp_path / "out")["settings"]["precision"] == "bfloat16"
    recipes = [(tmp_path / "out" / "cells" / f"{arm}--s0" / "recipe.yaml").read_text() for arm in larger["arms"]]
    assert all("precision: bfloat16" in recipe for recipe in recipes)
    speedup[0] = 2.0
    small = {"recipe": "modern-mini", "settings": {"model.hidden_size": 64}}
    mixed = build_comparison({**values, "arms": {**values["arms"], "small": small}})
    chosen = with_shared_precision(mixed, runner._check(mixed, tmp_path / "mixed"), tmp_path / "none.yaml")
    assert chosen.precision == "float32"


def test_a_quick_comparison_gives_all_arms_the_same_few_steps() -> None:
    quick = comparison_of_recipes(["bert-mini", "gpt2-mini"], source=SOURCE, quick=True)
    assert (quick.budget.kind, quick.settings["train.batch_tokens"]) == ("steps", 512)
    given = comparison_of_recipes(
        ["bert-mini", "gpt2-mini"], ["train.tokens=9000", "train.batch_tokens=64"], quick=True
    )
    assert (given.budget.kind, given.budget.amount, given.settings["train.batch_tokens"]) == ("tokens", 9000, 64)


def test_families_that_read_characters_keep_their_tokenizer() -> None:
    comparison = comparison_of_recipes(["bert-mini", "gpt2-mini", "elmo-mini"], source=SOURCE)
    from meristem.compare.cells import arm_tokenizers

    reasons = {arm: tokenizer.reason for arm, tokenizer in arm_tokenizers(comparison).items()}
    assert (reasons["gpt2-mini"], reasons["bert-mini"]) == ("", "")
    assert reasons["elmo-mini"].startswith("elmo reads")
    assert arm_tokenizers(comparison)["gpt2-mini"].settings == arm_tokenizers(comparison)["bert-mini"].settings


def test_the_command(meristem: Meristem, tmp_path: Path) -> None:
    overrides = [f"{key}={value}" for key, value in TINY.items()]
    command = ["compare", "gpt2-mini", "modern-mini", SOURCE, "train.steps=2", *overrides, "--seeds", "1", "--json"]
    printed = meristem(*command, "--out", tmp_path / "out")
    assert printed.code == 0, printed.err
    assert {"bits_per_byte.gpt2-mini", "loss.modern-mini"} <= set(printed.answers[0]["metrics"])
    assert {path.name for path in (tmp_path / "out").glob("report.*")} == {
        "report.html", "report.json", "report.csv", "report.md"}  # fmt: skip
    report = api.compare(
        ["gpt2-mini", "modern-mini"], {**TINY, "train.steps": 2}, source=SOURCE, seeds=1, out=tmp_path / "out"
    )
    assert "| bits_per_byte ↓ | modern-mini |" in report.to_markdown()
