"""`--processes N`: processes are restarted after a crash, and an error is reported once."""

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
from forked_processes import run_processes
from rich.console import Console

from meristem import api
from meristem.checkpoint import load
from meristem.cli import train as verb
from meristem.config.recipe import Recipe
from meristem.training import launch
from meristem.training.pretraining import pretrain

SMALL = [
    "model.layers=1", "model.hidden_size=32", "model.heads=2", "model.max_length=32", "tokenizer.vocab_size=300",
    "tokenizer.kind=bpe",
    "train.batch_tokens=224", "train.log_every=1", "train.save_every=10", "train.evaluate_tokens=256",
]  # fmt: skip


def command(cache: Path, out: Path, *words: str, processes: int = 2) -> subprocess.Popen[str]:
    arguments = ["pretrain", "gpt2-mini", "builtin:microworld-en?size=40", *SMALL, *words, "--out", str(out)]
    env = {**os.environ, "MERISTEM_CACHE": str(cache), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "meristem", *arguments, "--processes", str(processes)],
        env=env, cwd=cache, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def _pretrained(recipe: Recipe, out: Path) -> None:
    torch.set_num_threads(1)
    pretrain(recipe, out, fresh=False, console=Console(quiet=True))


def steps(out: Path) -> int:
    file = out / "metrics.jsonl"
    return file.read_text(encoding="utf-8").count('"train"') if file.is_file() else 0


def workers(parent: int) -> list[int]:
    pids = []
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat_file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            pids.append(int(stat_file.parent.name))
    return sorted(pids)


def wait_for(out: Path, number: int, run: subprocess.Popen[str]) -> None:
    start = time.monotonic()
    while steps(out) < number:
        assert run.poll() is None, run.stderr.read() if run.stderr else ""
        assert time.monotonic() - start < 120
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
def test_a_killed_process_is_restarted_and_the_run_ends_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # about 20 s: five starts of an interpreter with torch
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path))
    recipe = api.resolve_pretrain_recipe("gpt2-mini", [*SMALL, "train.steps=200"], "builtin:microworld-en?size=40")
    run_processes(2, lambda rank: _pretrained(recipe, tmp_path / "whole"), tmp_path / "said")
    out = tmp_path / "killed"
    run = command(tmp_path, out, "train.steps=200")
    wait_for(out, 40, run)
    os.kill(workers(run.pid)[-1], signal.SIGKILL)
    killed = time.monotonic()
    _, stderr = run.communicate(timeout=240)
    assert run.returncode == 0, stderr
    assert "another process of this run is gone" in stderr
    assert "Resuming from step" in stderr
    assert time.monotonic() - killed < 120
    restarted, expected = (load.load_checkpoint(tmp_path / name / "checkpoints") for name in ("whole", "killed"))
    assert restarted is not None
    assert expected is not None
    assert restarted.snapshot.step == expected.snapshot.step == 200
    for name, value in restarted.snapshot.model.items():
        assert torch.equal(value, expected.snapshot.model[name]), name


def test_an_error_at_the_start_is_reported_once_and_not_retried(tmp_path: Path) -> None:
    run = command(tmp_path, tmp_path / "run", "train.steps=3", "train.batch_tokens=32")
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 2
    assert stderr.count("a batch of 1 row cannot be split among 2 processes") == 1
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_the_first_signal_stops_all_after_a_save(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = command(tmp_path, out, "train.steps=100000")
    wait_for(out, 20, run)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 130
    assert stderr.count("run the same command again to resume") == 1
    assert "death signal" not in stderr
    checkpoint = load.load_checkpoint(out / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.snapshot.step >= 20


def test_nothing_restarts_after_an_exit_code_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch.report_exit_code(2) == 2  # alone: the code is its own
    monkeypatch.setenv(launch.EXIT_CODE_FILE_VAR, str(tmp_path / "verdict"))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert not launch.is_launch_ended()
    assert launch.report_exit_code(2) == 0
    assert launch.is_launch_ended()
    assert (tmp_path / "verdict").read_text() == "2"
    with pytest.raises(typer.Exit) as error:
        verb._launch_processes(2, None)
    assert error.value.exit_code == 0
