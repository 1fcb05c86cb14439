"""`--processes N`: started together, started again after a death, and refused with one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console
from team import together

from meristem import api
from meristem.checkpoint import load
from meristem.recipe import Recipe
from meristem.training import launching
from meristem.training.pretraining import pretrain
from meristem.verbs import training as verb

SMALL = [
    "model.layers=1", "model.width=32", "model.heads=2", "model.length=32", "tokenizer.size=300", "tokenizer.kind=bpe",
    "train.batch_tokens=224", "train.log_every=1", "train.save_every=10", "train.evaluate_tokens=256",
]  # fmt: skip


def command(cache: Path, out: Path, *words: str, processes: int = 2) -> subprocess.Popen[str]:
    told = ["pretrain", "gpt2-mini", "builtin:microworld-en?size=40", *SMALL, *words, "--out", str(out)]
    env = {**os.environ, "MERISTEM_CACHE": str(cache), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "meristem", *told, "--processes", str(processes)],
        env=env, cwd=cache, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def _pretrained(recipe: Recipe, out: Path) -> None:
    torch.set_num_threads(1)
    pretrain(recipe, out, fresh=False, console=Console(quiet=True))


def steps(out: Path) -> int:
    file = out / "metrics.jsonl"
    return file.read_text(encoding="utf-8").count('"train"') if file.is_file() else 0


def workers(parent: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(place.parent.name))
    return sorted(found)


def wait_for(out: Path, number: int, run: subprocess.Popen[str]) -> None:
    begun = time.monotonic()
    while steps(out) < number:
        assert run.poll() is None, run.stderr.read() if run.stderr else ""
        assert time.monotonic() - begun < 120
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
def test_a_killed_process_is_noticed_and_the_run_ends_as_if_it_had_lived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # about 20 s: five starts of an interpreter with torch
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path))
    recipe = api.recipe_for("gpt2-mini", [*SMALL, "train.steps=200"], "builtin:microworld-en?size=40")
    together(2, lambda rank: _pretrained(recipe, tmp_path / "whole"), tmp_path / "said")
    out = tmp_path / "killed"
    run = command(tmp_path, out, "train.steps=200")
    wait_for(out, 40, run)
    os.kill(workers(run.pid)[-1], signal.SIGKILL)
    killed = time.monotonic()
    _, said = run.communicate(timeout=240)
    assert run.returncode == 0, said
    assert "another process of this run is gone" in said
    assert "Going on at step" in said
    assert time.monotonic() - killed < 120
    one, two = (load.load(tmp_path / name / "checkpoints") for name in ("whole", "killed"))
    assert one is not None
    assert two is not None
    assert one.snapshot.step == two.snapshot.step == 200
    for name, value in one.snapshot.model.items():
        assert torch.equal(value, two.snapshot.model[name]), name


def test_what_cannot_begin_is_said_once_and_not_tried_again(tmp_path: Path) -> None:
    run = command(tmp_path, tmp_path / "run", "train.steps=3", "train.batch_tokens=32")
    _, said = run.communicate(timeout=120)
    assert run.returncode == 2
    assert said.count("a step of 1 row cannot be shared by 2 processes") == 1
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_first_signal_stops_all_after_a_save(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = command(tmp_path, out, "train.steps=100000")
    wait_for(out, 20, run)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert said.count("run the same command again to go on") == 1
    found = load.load(out / "checkpoints")
    assert found is not None
    assert found.snapshot.step >= 20


def test_after_a_verdict_nobody_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launching.judged(2) == 2  # alone: the code is its own
    monkeypatch.setenv(launching.VERDICT, str(tmp_path / "verdict"))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert not launching.condemned()
    assert launching.judged(2) == 0
    assert launching.condemned()
    assert (tmp_path / "verdict").read_text() == "2"
    with pytest.raises(typer.Exit) as ended:
        verb._together(2, None)
    assert ended.value.exit_code == 0
