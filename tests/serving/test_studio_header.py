"""Facts of a run for the list and its header: its own measure, parameters, data, time left; and many runs at once."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from meristem.checkpoint import folder_layout
from meristem.checkpoint.run_folder import RunFolder
from meristem.serving.studio import recipe_file
from meristem.serving.studio.metrics_tail import MetricsTail, metrics_tail
from meristem.serving.studio.run_details import run_details
from meristem.serving.studio.run_header import count_parameters, run_header, seconds_left, training_data_name
from meristem.serving.studio.run_list import ListedFolder, RunListing
from meristem.serving.studio.run_measures import run_measure
from meristem.serving.studio.run_status import run_status
from meristem.utils import untrusted_files

RECIPE: dict[str, Any] = {
    "corpus": {"source": "builtin:pydocs"},
    "model": {"family": "bert"},
    "objective": [{"name": "mlm"}],
    "train": {"steps": 100},
}


def write_run(path: Path, recipe: dict[str, Any] | None = None, steps: int = 20) -> RunFolder:
    """A run that takes half a second for a step, and is training now."""
    run = RunFolder.create(path, yaml.safe_dump(recipe or RECIPE), None)
    rows = [{"step": n, "kind": "train", "loss": 5 - n / 10, "tokens": n * 64, "seconds": n / 2,
             "tokens_per_second": 128.0} for n in range(1, steps + 1)]  # fmt: skip
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.mark.parametrize(
    ("kind", "finished", "evaluation", "expected"),
    [
        ("objectives", None, {}, ("loss", "train", 3.0, True)),
        ("objectives", None, {"loss": 2.5, "mlm.top1": 0.4}, ("loss", "validation", 2.5, True)),
        ("tasks", None, {"loss": 2.5, "accuracy": 0.7, "f1_macro": 0.6}, ("accuracy", "validation", 0.7, False)),
        ("tasks", None, {"loss": 2, "exact": 0.2, "f1": 0.3}, ("f1", "validation", 0.3, False)),
        (
            "tasks",
            {"judged_by": "exact", "validation": {"loss": 1.0, "exact": 0.4, "slot_f1": 0.8}},
            {},
            ("exact", "validation", 0.4, False),
        ),
        (
            "tasks",
            {"judged_by": "loss", "validation": {"loss": 1.0}, "test": {"bleu": 17.0, "chrf": 30.0}},
            {},
            ("bleu", "test", 17.0, False),
        ),
        (
            "tasks",
            {"judged_by": "loss", "validation": {"loss": 1}, "test": {"bleu": 1, "distinct1": 0.1, "perplexity": 9.0}},
            {},
            ("perplexity", "test", 9.0, True),
        ),
        ("rewards", None, {"reward": 0.4, "leashed": 0.1, "loss": 3}, ("reward", "validation", 0.4, False)),
        ("tasks", {"judged_by": "accuracy", "validation": {"accuracy": "high"}}, {}, ("loss", "train", 3.0, True)),
    ],
)  # fmt: skip
def test_each_run_is_judged_by_its_own_measure(
    kind: str, finished: dict[str, Any] | None, evaluation: dict[str, float], expected: tuple[str, str, float, bool]
) -> None:
    measure = run_measure(kind, finished, MetricsTail(loss=3.0, evaluation=evaluation))
    assert measure is not None and tuple(measure.values()) == expected


def test_a_run_that_measured_nothing_has_no_measure() -> None:
    assert run_measure("tasks", None, MetricsTail()) is None


def test_time_left_by_steps_or_by_minutes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    status = run_status(run, RECIPE, None)
    assert status.state == "training" and seconds_left(run, RECIPE, status) == pytest.approx(40)
    by_time = {**RECIPE, "train": {"minutes": 1}}
    assert seconds_left(run, by_time, status) == pytest.approx(50)
    for path in run.path.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    assert seconds_left(run, RECIPE, run_status(run, RECIPE, None)) is None, "nobody waits for a run that stands still"


def test_throughput_and_data_are_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    line = "Training x: bert, 0.2 M parameters, mlm, on 929,455 tokens; 240 steps (240 steps) in runs/x\n"
    run.log_path.write_text(f"2026-01-01 10:00:00 {line}")
    header = run_header(run, RECIPE, run_status(run, RECIPE, None))
    assert (header["seconds"], header["tokens"], header["tokens_per_second"]) == (10, 1280, 128)
    assert (header["data"], header["data_size"]) == ("builtin:pydocs", "929,455 tokens")
    assert training_data_name({"data": {"train": "a.tsv"}, **RECIPE}) == "a.tsv"
    mixed = {"mix": [{"corpus": {"source": "a"}}, {"corpus": {"source": ["b", "c"]}}, {"corpus": {"source": "a"}}]}
    assert training_data_name(mixed) == "a, b, c"
    assert [
        training_data_name(malformed) for malformed in ({}, {"mix": 3, "corpus": []}, {"data": {"train": None}})
    ] == [
        "",
        "",
        "",
    ]


def test_parameters_are_those_of_the_model(runs: dict[str, Path]) -> None:
    from meristem.checkpoint.load_run import load_run

    for name in ("bert", "gpt2", "translator"):
        loaded_run = load_run(runs[name])
        num_parameters = sum(parameter.numel() for parameter in loaded_run.learner.model.parameters())
        latest = folder_layout.read_pointer(RunFolder(runs[name]).checkpoints, "latest")
        assert latest is not None and count_parameters(RunFolder(runs[name]), latest) == num_parameters


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x02" + b"\0" * 7 + b"[]", (1 << 40).to_bytes(8, "little")])
def test_weights_that_are_none_have_no_parameters(tmp_path: Path, content: bytes) -> None:
    run = write_run(tmp_path / "a")
    folder = run.checkpoints / folder_layout.folder_name(3)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(content)
    assert count_parameters(run, 3) is None


def test_strange_lines_are_no_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", steps=2)
    with run.metrics_path.open("a") as file:
        file.write('{"step": 3, "kind": "evaluation", "loss": NaN, "a": true, "b": "x", "f1": 0.5}\n{"broken\n[1]\n')
        file.write('{"step": 4, "kind": "train", "loss": 1e999, "seconds": -3, "tokens": "many"}\n')
    tail = metrics_tail(run.metrics_path)
    assert tail.evaluation == {"f1": 0.5} and tail.loss == 4.8 and tail.step == 4
    assert (tail.seconds, tail.tokens) == (None, None)
    json.dumps(run_details(ListedFolder("a", run.path)), allow_nan=False)


def test_a_card_with_a_huge_word_is_read_at_once(tmp_path: Path) -> None:
    """Splitting the word as a shell does took minutes: its time grew with the square of the length."""
    run = write_run(tmp_path / "a", steps=2)
    huge = "meristem fill runs/a " + "x" * (2 << 20)
    line = "meristem fill runs/a 'The [MASK] sank.'"
    (run.path / "README.md").write_text(f"# A\n\n## Use\n\n```bash\n{huge}\nmeristem fill 'open\n{line}\n```\n")
    start = time.process_time()
    details = run_details(ListedFolder("a", run.path))
    assert time.process_time() - start < 5
    assert len(details["card"]) < 300_000
    (run.path / "README.md").write_text(f"```bash\n{huge[:9000]}\nmeristem fill 'open\n{line}\n```\n")
    assert run_details(ListedFolder("a", run.path))["examples"] == {"text": "The [MASK] sank."}


DEEP = ["- " * 5000, "a: " + "[" * 5000, "{" * 5000, "? " * 3000 + "a", "\n".join(" " * n + "a:" for n in range(200))]


@pytest.mark.parametrize(
    "text", [*DEEP, "a: &x [1]\nb: [*x, *x]", "a: !!python/object:os.system {}", "a: [", "a: 1\na: 2"]
)
def test_strange_recipes_are_read_by_the_careful_reader_or_not_at_all(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_texts: list[str] = []
    careful = untrusted_files.parse_yaml
    monkeypatch.setattr(untrusted_files, "parse_yaml", lambda text: (parsed_texts.append(text), careful(text))[1])
    run = write_run(tmp_path / "a")
    run.recipe_path.write_text(text)
    run_recipe = recipe_file.read_run_recipe(run)
    assert isinstance(run_recipe, dict)
    assert parsed_texts or text in ("a: [", "a: 1\na: 2"), "libyaml follows any nesting down"


def test_500_runs_are_listed_quickly(tmp_path: Path) -> None:
    """Some seconds at first, because 500 recipes are parsed; what has not changed is not read again."""
    first = write_run(tmp_path / "first", steps=20)
    first.log_path.write_text("2026-01-01 10:00:00 step 20/77  validation  loss 3\n" * 9)
    for number in range(1, 500):
        shutil.copytree(first.path, tmp_path / "runs" / f"run-{number:03d}", copy_function=os.link)
    first.path.rename(tmp_path / "runs" / "run-000")
    first = RunFolder(tmp_path / "runs" / "run-000")
    listing = RunListing(tmp_path / "runs")
    assert len(listing.summaries()) == 500
    durations = []
    for _ in range(3):
        start = time.process_time()
        listing.summaries()
        durations.append(time.process_time() - start)
    assert min(durations) < 0.6, durations
    with first.metrics_path.open("a") as file:
        file.write('{"step": 121, "kind": "train", "loss": 1.5}\n')
    assert listing.summaries()[0]["loss"] == 1.5, "what has changed is read again"
