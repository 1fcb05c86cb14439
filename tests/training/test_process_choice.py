"""Threads or processes: measured once per shape, cached, kept on resume, and never chosen where it cannot be right."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from meristem.config.recipe import Recipe, resolve_recipe
from meristem.describe import process_choice, process_timing
from meristem.describe.process_choice import choose_processes
from meristem.distributed.process_group import SINGLE_PROCESS
from meristem.training import launch

CORES = 2
SETTINGS: dict[str, Any] = {
    "model": {"family": "gpt2", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 16},
    "objective": "clm",
    "tokenizer": {"vocab_size": 300},
    "corpus": {"source": "builtin:microworld-en?size=40"},
}


def recipe_of(**train: Any) -> Recipe:
    return resolve_recipe("small", {**SETTINGS, "train": {"minutes": 20, "batch_tokens": 64, **train}})


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A machine where torch uses two threads of its own accord, with an empty cache."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    yield tmp_path
    torch.set_num_threads(before)


def task_of(**train: Any) -> Recipe:
    data = {"train": "builtin:microworld-sentiment?size=60"}
    sections = {"task": {"name": "classification", "backbone_mode": "bidirectional"}, "data": data}
    model = {**SETTINGS["model"], "family": "bert"}
    train = {"minutes": 20, "batch_samples": 4, **train}
    return resolve_recipe("task", {**sections, "model": model, "tokenizer": {"vocab_size": 300}, "train": train})


def write_timings(recipe: Recipe, threads: float, processes: float) -> None:
    path = process_choice._cache_path(recipe, CORES)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"threads": threads, "processes": processes}))


def test_both_are_measured_once_and_said_in_one_line(two_cores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_choice, "MIN_GAIN", 0.0)  # whatever is faster here
    screen = io.StringIO()
    console = Console(file=screen, width=200)
    assert choose_processes(recipe_of(), two_cores / "run", console) == CORES
    (file,) = (two_cores / "cache" / "step-timings").iterdir()
    timings = json.loads(file.read_text())
    assert timings["threads"] > 0
    assert timings["processes"] > 0
    first_lines = screen.getvalue().splitlines()
    assert len(first_lines) == 2
    assert "2 processes of one thread are" in first_lines[1]
    monkeypatch.setattr(process_choice, "step_seconds", None)  # now it would fail
    assert choose_processes(recipe_of(), two_cores / "run", console) == CORES
    assert screen.getvalue().splitlines()[2:] == [first_lines[1]]


def test_steps_of_a_task_are_timed_on_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_timing, "TIMED_SECONDS", 0.0)
    assert 0 < process_timing.time_steps(task_of(), SINGLE_PROCESS) < 5


@pytest.mark.parametrize(("processes_seconds", "chosen"), [(0.80, CORES), (0.97, 1), (1.5, 1)])
def test_processes_must_be_clearly_faster(two_cores: Path, processes_seconds: float, chosen: int) -> None:
    write_timings(recipe_of(), 1.0, processes_seconds)
    assert choose_processes(recipe_of(), two_cores / "run", Console(quiet=True)) == chosen


REFUSED: dict[str, dict[str, Any]] = {
    "short": {"minutes": 2},
    "few steps": {"minutes": None, "steps": 100},
    "threads set": {"threads": 2},
    "one row": {"batch_tokens": 16},
}


@pytest.mark.parametrize("train", REFUSED.values(), ids=REFUSED)
def test_one_process_where_several_are_no_use(two_cores: Path, train: dict[str, Any]) -> None:
    recipe = recipe_of(**train)
    write_timings(recipe, 1.0, 0.1)
    assert choose_processes(recipe, two_cores / "run", Console(quiet=True)) == 1


@pytest.mark.parametrize(
    "train", [{"minutes": 2}, {"threads": 2}, {"batch_samples": 1}, {"minutes": None, "epochs": 3}], ids=str
)
def test_tasks_are_trained_in_one_process_where_several_are_no_use(two_cores: Path, train: dict[str, Any]) -> None:
    recipe = task_of(**train)
    write_timings(recipe, 1.0, 0.1)
    assert choose_processes(recipe, two_cores / "run", Console(quiet=True)) == 1


def test_the_size_of_a_task_is_that_of_its_files_and_a_grid_stays_in_one_process(two_cores: Path) -> None:
    file = two_cores / "train.tsv"
    file.write_text("a\tb\n" * 50_000)
    recipe = task_of(minutes=None, epochs=1e6)
    write_timings(recipe, 1.0, 0.1)
    assert choose_processes(recipe, two_cores / "run", Console(quiet=True)) == 1  # built-in data are small
    recipe = replace(recipe, data=recipe.data.model_copy(update={"train": str(file)}))
    write_timings(recipe, 1.0, 0.1)
    assert choose_processes(recipe, two_cores / "run", Console(quiet=True)) == CORES
    grid = replace(recipe, grid=recipe.grid.model_copy(update={"seeds": 3}))
    assert choose_processes(grid, two_cores / "run", Console(quiet=True)) == 1


def test_threads_set_in_the_environment_are_kept(two_cores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_timings(recipe_of(), 1.0, 0.1)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert choose_processes(recipe_of(), two_cores / "run", Console(quiet=True)) == 1


@pytest.mark.parametrize(
    ("recorded", "chosen"), [({"processes": 2}, 2), ({"processes": 1}, 1), ({}, 1), ({"processes": 64}, 1)]
)
def test_a_run_resumes_as_it_started(two_cores: Path, recorded: dict[str, int], chosen: int) -> None:
    run = two_cores / "run"
    checkpoint = run / "checkpoints" / "step-00000007"
    checkpoint.mkdir(parents=True)
    (run / "recipe.yaml").write_text("model: {}\n")
    (checkpoint / "state.json").write_text(json.dumps(recorded))
    write_timings(recipe_of(), *((1.0, 2.0) if chosen > 1 else (1.0, 0.1)))
    assert choose_processes(recipe_of(), run, Console(quiet=True)) == chosen
    assert choose_processes(recipe_of(), run, Console(quiet=True), fresh=True) == (1 if chosen > 1 else CORES)


def test_only_the_command_starts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not launch.can_relaunch()  # in a script or a notebook
    with launch.keep_command_line(["pretrain"]):
        assert launch.can_relaunch()
        with monkeypatch.context() as launched:
            launched.setenv("TORCHELASTIC_RUN_ID", "x")
            assert not launch.can_relaunch()
    assert not launch.can_relaunch()  # in a program that has called the command
