"""torch.compile is used where a run repays it: measured once for each shape, recorded, and kept on resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from meristem.config.recipe import Recipe, resolve_recipe
from meristem.training import layer_compilation
from meristem.training.layer_compilation import CompileTimings, choose_compilation
from meristem.training.pretraining import pretrain

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS: dict[str, Any] = {
    "model": {"family": "gpt2", "layers": 2, "hidden_size": 32, "heads": 2, "max_length": 16, "dropout": 0.0},
    "objective": "clm",
    "tokenizer": {"vocab_size": 300},
    "corpus": {"source": "builtin:microworld-en?size=40"},
}


def recipe_of(**train: Any) -> Recipe:
    settings = {"batch_tokens": 64, "threads": 1, "evaluate_tokens": 64, "evaluate_every": 2, "log_every": 1, **train}
    return resolve_recipe("small", {**SETTINGS, "train": settings})


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("timings", "minutes", "pays"),
    [
        (CompileTimings(1.2, 1.0, 212), 20, False),  # saves 200 s
        (CompileTimings(1.2, 1.0, 212), 40, True),
        (CompileTimings(1.04, 1.0, 74), 40, False),
        (CompileTimings(1.04, 1.0, 74), 60, True),
        (CompileTimings(1.01, 1.0, 1), 24 * 60, False),  # within the noise of a timing
        (CompileTimings(0.9, 1.0, 1), 24 * 60, False),
    ],
)
def test_it_pays_where_it_saves_more_than_it_takes(timings: CompileTimings, minutes: float, pays: bool) -> None:
    assert timings.pays(60 * minutes) is pays


def test_it_is_measured_once_in_long_runs_only_and_said_in_one_line() -> None:
    timings, lines, measured = CompileTimings(1.2, 1.0, 212), list[str](), list[int]()

    def measure() -> CompileTimings:
        measured.append(1)
        return timings

    def choose(seconds: float, **shape: object) -> bool:
        return choose_compilation(seconds, {"model": 1, **shape}, measure, lines.append)

    assert not choose(3000) and not measured and not lines
    assert choose(4000) and len(measured) == 1
    assert lines[1:] == [
        "torch.compile makes steps 1.20 times as fast after 212 s, so this run uses it (train.compile)"
    ]
    assert choose(3000) and len(measured) == 1  # known by now
    assert choose(4000, batch=2) and len(measured) == 2
    (file, _) = sorted((Path(layer_compilation.cache_dir()) / "compile-timings").iterdir())
    for content in ("{", "[]", '{"eager": 1}', '{"eager": 0, "compiled": 1, "compiling": 1}', '{"eager": "x"}'):
        file.write_text(content)
        assert layer_compilation._cached_timings(file) is None


def state_of(run: Path) -> dict[str, Any]:
    (checkpoint,) = sorted((run / "checkpoints").glob("step-*"))[-1:]
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return state


def test_the_decision_is_recorded_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilation itself is replaced by a count, since it takes a minute; the slow test below runs it."""
    compiled: list[int] = []
    monkeypatch.setattr("meristem.training.trainer.compile_layers", lambda learner: compiled.append(1))
    asked: list[float] = []

    def choose(seconds: float, *_: object) -> bool:
        asked.append(seconds)
        return True

    monkeypatch.setattr(layer_compilation, "choose_compilation", choose)
    quiet = Console(quiet=True)
    pretrain(recipe_of(steps=2), tmp_path / "run", fresh=False, console=quiet)
    assert state_of(tmp_path / "run")["compiled"] == "layers" and len(compiled) == 1
    assert 0 < asked[0] < 1e-3  # two steps of 64 tokens
    pretrain(recipe_of(steps=3, compile=False), tmp_path / "run", fresh=False, console=quiet)
    assert state_of(tmp_path / "run")["compiled"] == "layers" and len(compiled) == 2 and len(asked) == 1
    assert "Resuming with layers compiled" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    pretrain(recipe_of(steps=2, compile=False), tmp_path / "plain", fresh=False, console=quiet)
    pretrain(recipe_of(steps=3, compile=True), tmp_path / "plain", fresh=False, console=quiet)
    assert state_of(tmp_path / "plain")["compiled"] == "nothing" and len(compiled) == 2


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


@pytest.mark.slow
def test_compiled_runs_resume_bit_for_bit_and_compute_the_same(tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    for name, compile_, parts in (("eager", False, [6]), ("whole", True, [6]), ("parts", True, [3, 6])):
        for steps in parts:
            torch.compiler.reset()
            pretrain(
                recipe_of(steps=steps, compile=compile_, schedule="constant"),
                tmp_path / name,
                fresh=False,
                console=quiet,
            )
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert losses(tmp_path / "whole") == pytest.approx(losses(tmp_path / "eager"), rel=1e-4)
