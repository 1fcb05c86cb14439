"""The runs of a folder as the page lists them: named by where they lie, judged by what they left."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from meristem.checkpoint import folder_layout
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.drawing.single_task_comparison import SingleTaskComparison, TaskComparison
from meristem.serving.errors import RequestError
from meristem.serving.studio.metrics_tail import SAMPLE_BYTES, SPARKLINE_POINTS, sample_losses
from meristem.serving.studio.run_comparison import final_metrics, flops_per_token, setting_differences
from meristem.serving.studio.run_curves import RunCurves
from meristem.serving.studio.run_details import card_example, next_commands, run_details
from meristem.serving.studio.run_list import MAX_DEPTH, ListedFolder, RunListing, run_kind
from meristem.serving.studio.run_status import read_file_locks, run_status

RECIPE: dict[str, Any] = {
    "corpus": {"source": "builtin:pydocs"},
    "tokenizer": {"kind": "wordpiece", "vocab_size": 400},
    "model": {"family": "bert", "layers": 1},
    "objective": [{"name": "mlm", "mask_rate": 0.15}, {"name": "nsp"}],
    "train": {"steps": 50, "learning_rate": 0.001},
}


def write_run(path: Path, steps: int = 0, *, saved: int | None = None, recipe: dict[str, Any] | None = None,
         old: bool = True) -> RunFolder:  # fmt: skip
    """A run as training leaves it on the disk, weights aside."""
    run = RunFolder.create(path, yaml.safe_dump(recipe or RECIPE), None)
    rows = [{"step": step, "kind": "train", "loss": 5 - step / 10, "tokens": step * 10} for step in range(1, steps + 1)]
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if saved is not None:
        (run.checkpoints / folder_layout.folder_name(saved)).mkdir()
        folder_layout.write_pointer(run.checkpoints, "latest", saved)
    if old:
        quiet(run)
    return run


def quiet(run: RunFolder) -> None:
    """It said nothing for an hour."""
    for path in run.path.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)


def add(run: RunFolder, **entry: Any) -> None:
    with run.metrics_path.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    quiet(run)


def status_of(run: RunFolder) -> tuple[str, str]:
    status = run_status(run, RECIPE, read_file_locks())
    return status.state, status.why


def test_how_a_run_stands(tmp_path: Path) -> None:
    assert status_of(write_run(tmp_path / "new")) == ("new", "not_begun")
    assert status_of(write_run(tmp_path / "imported", saved=0)) == ("finished", "given")
    assert status_of(write_run(tmp_path / "stopped", 10, saved=10)) == ("stopped", "saved")
    assert status_of(write_run(tmp_path / "killed", 10, saved=6)) == ("failed", "unsaved")
    assert status_of(write_run(tmp_path / "early", 10)) == ("failed", "nothing_saved")
    bad = write_run(tmp_path / "bad", 10, saved=10)
    add(bad, step=11, kind="skipped", source="main", samples=[1], texts=["what broke it"])
    assert status_of(bad) == ("failed", "not_finite")
    assert run_status(bad, RECIPE, None).detail == "what broke it"
    finished_run = write_run(tmp_path / "done", 50, saved=50)
    finished_run.mark_finished({"step": 50})
    assert status_of(finished_run) == ("finished", "budget")
    stopped_run = write_run(tmp_path / "asked", 30, saved=30)
    add(stopped_run, step=30, kind="stopped", why="KL is above its bound")
    stopped_run.mark_finished({"step": 30})
    assert status_of(stopped_run) == ("finished", "asked")
    patient = write_run(tmp_path / "patient", 30, saved=30)
    patient.log_path.write_text(
        "2026-01-01 10:00:00 stopped early at step 30: validation has not improved in 3 evaluations\n"
    )
    patient.mark_finished({"step": 30})
    assert status_of(patient) == ("finished", "patience")


def test_a_run_trains_while_its_lock_is_held_or_its_file_grows(tmp_path: Path) -> None:
    locked_run = write_run(tmp_path / "held", 10, saved=10)
    with locked_run.hold_lock():
        quiet(locked_run)
        assert status_of(locked_run) == ("training", "")
        assert run_status(locked_run, RECIPE, None).state == "training", "also where the system does not tell its locks"
    assert status_of(locked_run) == ("stopped", "saved")
    with locked_run.hold_lock():  # nobody was kept from it by the look
        pass
    assert status_of(write_run(tmp_path / "growing", 10, saved=2, old=False)) == ("training", "")


def test_steps_loss_and_a_small_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 20, saved=20)
    status = run_status(run, RECIPE, None)
    assert (status.step, status.total, status.loss, status.saved) == (20, 50, 3.0, 20)
    assert status.spark == pytest.approx([5 - step / 10 for step in range(1, 21)])
    recipe = {**RECIPE, "train": {"minutes": 3}}
    run.log_path.write_text("2026-01-01 10:00:00 step 20/77  validation  loss 3\n")
    assert run_status(run, recipe, None).total == 77
    (run.checkpoints / folder_layout.folder_name(20) / "state.json").write_text('{"total": 88}')
    assert run_status(run, recipe, None).total == 88


def test_the_small_curve_of_a_long_file_reads_little_of_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = (json.dumps({"step": n, "kind": "train", "loss": 10 - n / 5000, "more": "x" * 200}) for n in range(20_000))
    path.write_text("\n".join(rows))
    assert path.stat().st_size > 10 * SPARKLINE_POINTS * SAMPLE_BYTES
    losses = sample_losses(path)
    assert len(losses) == SPARKLINE_POINTS
    assert losses == sorted(losses, reverse=True) and losses[0] > 9.9 and losses[-1] < 6.1


def test_runs_are_found_below_but_not_inside_runs_and_never_through_links(tmp_path: Path) -> None:
    folder, outside = tmp_path / "runs", tmp_path / "outside"
    write_run(folder / "a", 3)
    write_run(folder / "sweep" / "b", 3)
    write_run(folder / "a" / "judges" / "c", 3)
    write_run(folder / ".hidden", 3)
    write_run(outside, 3)
    (folder / "link").symlink_to(outside)
    deep = folder.joinpath(*"x" * MAX_DEPTH)
    write_run(deep / "y", 1)
    (folder / "texts").mkdir()
    (folder / "texts" / "report.html").write_text("<p>corpus</p>")
    (folder / "arms").mkdir()
    (folder / "arms" / "report.html").write_text("<p>arms</p>")
    (folder / "arms" / "report.json").write_text('{"summary": "a is better", "measures": []}')
    listing = RunListing(folder)
    assert [summary["name"] for summary in listing.summaries()] == ["a", "sweep/b"]
    assert [(report["name"], report["kind"], report["title"]) for report in listing.reports()] == [
        ("arms", "comparisons", "a is better"), ("texts", "corpus", "")]  # fmt: skip
    assert [summary["name"] for summary in RunListing(folder / "a").summaries()] == ["a"], (
        "a folder that is a run itself"
    )
    assert RunListing(tmp_path / "nowhere").summaries() == []
    for name in ("link", "../outside", str(outside), "a/judges/c", "", "sweep", "a/", "./a", "A"):
        with pytest.raises(RequestError, match="there is no run"):
            listing.open_run(name)
    with pytest.raises(RequestError, match="is a report, not a run"):
        listing.open_run("texts")


def test_a_run_whose_files_are_links_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret: hidden\n")
    run = write_run(tmp_path / "runs" / "a", 3)
    run.metrics_path.unlink()
    run.metrics_path.symlink_to(tmp_path / "secret.txt")
    run.recipe_path.unlink()
    run.recipe_path.symlink_to(tmp_path / "secret.txt")
    listing = RunListing(tmp_path / "runs")
    assert "hidden" not in json.dumps(listing.summaries())
    with pytest.raises(MeristemError, match="is a symbolic link"):
        listing.open_run("a")
    with pytest.raises(MeristemError, match="is a symbolic link"):
        run_details(ListedFolder("a", run.path))


NAMES = ["<img src=x onerror=alert(1)>", "a b&c=d?e#f", "训练", "'\";--", "a..b", "%2e%2e", "a\nb"]


def test_any_name_is_a_name(tmp_path: Path) -> None:
    for name in NAMES:
        write_run(tmp_path / name, 2)
    write_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff")), 2)
    write_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xfe")), 2)
    listing = RunListing(tmp_path)
    names = [summary["name"] for summary in listing.summaries()]
    assert set(NAMES) < set(names)
    assert {"b�", "b� (2)"} < set(names), "names that cannot be told apart get a number"
    for name in names:
        assert listing.open_run(name).metrics_path.is_file()
        json.dumps(run_details(listing.get(name))).encode()


def test_the_report_of_a_mix_shows_the_loss_of_each_task(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mix")
    losses = {("mlm+nsp", "mlm"): 2.5, ("mlm+nsp", "nsp"): 0.5, ("caption", "caption"): 1.5}
    tasks = [TaskComparison(source=source, term=term, steps=9, samples=90, loss_mixed=loss, loss_alone=3.0)
             for (source, term), loss in losses.items()]  # fmt: skip
    report = SingleTaskComparison(run="mix", model="multitask, 1.0 M parameters", split="test", seed=1, tasks=tasks)
    (run.path / "report.html").write_text(report.to_html())
    (run.path / "report.json").write_text(report.to_json())
    (listed,) = RunListing(tmp_path).reports()
    assert listed["numbers"] == {"mlm+nsp.mlm": 2.5, "mlm+nsp.nsp": 0.5, "caption.caption": 1.5}
    assert (listed["kind"], listed["title"]) == ("tasks", "multitask, 1.0 M parameters")


@pytest.mark.parametrize("facts", ['{"tasks": 3, "numbers": {"a": 1}}', '{"tasks": [1, null]}', "[]", "{"])
def test_a_report_without_numbers_shows_none(tmp_path: Path, facts: str) -> None:
    run = write_run(tmp_path / "odd")
    (run.path / "report.html").write_text("<p>report</p>")
    (run.path / "report.json").write_text(facts)
    (listed,) = RunListing(tmp_path).reports()
    assert listed["numbers"] == {}


def test_what_a_run_learns() -> None:
    assert run_kind(RECIPE) == {"family": "bert", "kind": "objectives", "learns": "mlm + nsp"}
    task = {"model": {"family": "gpt2"}, "task": {"name": "pair"}}
    assert run_kind(task) == {"family": "gpt2", "kind": "tasks", "learns": "pair"}
    rewards = {**task, "policy": {"name": "policy"}, "rewards": [{"name": "length"}, {"name": "grammar"}]}
    assert run_kind(rewards)["learns"] == "length + grammar"
    mixed = {"mix": [{"name": "a", "objective": [{"name": "clm"}]}, {"name": "b", "objective": [{"name": "caption"}]}]}
    assert run_kind(mixed)["learns"] == "clm / caption"
    for malformed in ({}, {"objective": 3}, {"model": [], "mix": "x"}, {"task": [1]}):
        assert set(run_kind(malformed)) == {"family", "kind", "learns"}


def test_only_what_differs_is_told() -> None:
    other = {**RECIPE, "train": {"steps": 50, "learning_rate": 0.003}, "objective": [{"name": "mlm", "mask_rate": 0.3}]}
    differences = {
        setting_difference["setting"]: setting_difference["values"]
        for setting_difference in setting_differences({"a": RECIPE, "b": other})
    }
    assert differences == {"objective.mlm.mask_rate": ["0.15", "0.3"], "objective.nsp.name": ["nsp", None],
                    "train.learning_rate": ["0.001", "0.003"]}  # fmt: skip
    assert setting_differences({"a": RECIPE, "b": RECIPE}) == []


def test_the_best_of_the_final_numbers(tmp_path: Path) -> None:
    losses = {"a": 2.0, "b": 1.5, "c": 1.5}
    runs = {name: write_run(tmp_path / name, 3, saved=3) for name in losses}
    for name, loss in losses.items():
        if name != "c":
            numbers = {"loss": loss, "nsp.accuracy": loss, "odd": loss}
            runs[name].mark_finished({"validation": numbers, "used": {"tokens": 10, "flops": 50.0}})
    add(runs["c"], step=3, kind="evaluation", loss=1.5)
    curves = {name: RunCurves(run.metrics_path) for name, run in runs.items()}
    for curve in curves.values():
        curve.refresh()
    metrics_by_name = {row["name"]: row for row in final_metrics(runs, dict.fromkeys(runs, RECIPE), curves)}
    assert metrics_by_name["validation loss"] == {"name": "validation loss", "values": [2.0, 1.5, 1.5], "best": [1, 2]}
    assert metrics_by_name["validation nsp.accuracy"]["best"] == [0] and metrics_by_name["validation odd"]["best"] == []
    other = {"a": RECIPE, "b": RECIPE, "c": {**RECIPE, "corpus": {"source": "elsewhere"}}}
    metrics_by_name = {row["name"]: row["best"] for row in final_metrics(runs, other, curves)}
    assert metrics_by_name["validation loss"] == [], "losses on different texts say different things"
    assert flops_per_token(runs["a"]) == 5.0 and flops_per_token(runs["c"]) is None


def test_commands_that_go_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "my run", 10, saved=10)
    quoted = f"'{run.path}'"
    resume_command = f"meristem pretrain '{run.path}/recipe.yaml'"
    assert next_commands(run.path, "objectives", RECIPE, run_status(run, RECIPE, None)) == [
        f"{resume_command} --out {quoted}"
    ]
    run.mark_finished({"step": 50})
    status = run_status(run, RECIPE, None)
    assert (
        next_commands(run.path, "objectives", RECIPE, status)[0] == f"{resume_command} train.steps=100 --out {quoted}"
    )


def test_examples_come_from_the_card() -> None:
    card = "# x\n```bash\nmeristem evaluate .\nmeristem {} \n```\n"
    assert card_example(card.format('fill . "A [MASK]."')) == {"text": "A [MASK]."}
    assert card_example(card.format("generate . --prompt 'The old'")) == {"text": "The old"}
    question_example = card_example(card.format("predict . --question 'Who?' --passage 'Ada.'"))
    assert question_example == {"question": "Who?", "passage": "Ada."}
    choice_example = card_example(card.format("predict . 'It rained' --choices a --choices 'b c' --question 'Why?'"))
    assert choice_example == {"text": "It rained", "choices": "a\nb c", "question": "Why?"}
    assert card_example(card.format("fill . 'unclosed")) == {} == card_example("")
