"""Sandboxed trials and a trial of the mutation campaign: limits, signals and executed files are detected."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hostile.sandboxed_trial import run_sandboxed
from tokenizers import Tokenizer, models

from benchmarks.mutations import operations, summary, trials
from benchmarks.mutations.base_runs import BaseRun
from benchmarks.mutations.trials import GOOD, Plan, run_trial
from meristem.config.errors import MeristemError


def execute(run: Path, out: Path, kind: str) -> str:
    os.system("true")
    return ""


def write_elsewhere(run: Path, out: Path, kind: str) -> str:
    (run.parents[1] / "elsewhere").write_text("x")
    return ""


def take_memory(run: Path, out: Path, kind: str) -> str:
    return "x" if bytearray(1100 << 20) else ""


def segfault(run: Path, out: Path, kind: str) -> str:
    faulthandler.disable()  # of pytest: the signal is meant
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


def fail(run: Path, out: Path, kind: str) -> str:
    raise ValueError("x" * 10_000)


def refuse_without_words(run: Path, out: Path, kind: str) -> str:
    raise MeristemError("an unexpected KeyError")


FAULTS = {
    execute: "executed: os.system", write_elsewhere: "executed: open for writing", take_memory: "died of MemoryError",
    segfault: "died of SIGSEGV", fail: "died of ValueError", refuse_without_words: "refused without a reason",
}  # fmt: skip


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BaseRun:
    """A folder with no more than a tokenizer, which is all that a trial of that operation reads."""
    for name in ("MERISTEM_CACHE", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))  # a trial sets them: afterwards they are what they were
    monkeypatch.setattr("tempfile.tempdir", None)
    data_size = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    monkeypatch.setattr(trials, "MEMORY", data_size + (1 << 30))  # this process has held other tests, too
    for folder in ("base", "cache", "work"):
        (tmp_path / folder).mkdir()
    Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a")).save(str(tmp_path / "base" / "tokenizer.json"))
    return BaseRun(kind="gpt2", finished=tmp_path / "base", stopped=tmp_path / "base", final_weights="")


def trial(base: BaseRun) -> dict[str, Any]:
    caches, workspace = (base.finished.with_name(name) for name in ("cache", "work"))
    return run_trial(Plan(9, "tokenizer", "gpt2"), base, caches, workspace)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_trial_sees_every_fault(fault: operations.Operation, base: BaseRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations.OPERATIONS, "tokenizer", fault)
    line = trial(base)
    assert line["outcome"].startswith(FAULTS[fault]), line
    assert line["outcome"] not in GOOD
    assert len(json.dumps(line)) < 1200
    page = summary.page([line])
    assert "1 trials, 0 held, 1 failed" in page and line["outcome"] in page


def test_a_trial_that_holds_is_a_short_line(base: BaseRun) -> None:
    line = trial(base)
    assert line["outcome"] in GOOD
    assert len(json.dumps(line, separators=(",", ":"))) < 330
    assert not list(base.finished.with_name("work").iterdir())


@pytest.mark.parametrize(("hang", "cause"), [(True, "SIGKILL"), (False, "SIGXCPU")], ids=["sleeping", "computing"])
def test_a_child_that_does_not_end_is_ended(
    hang: bool, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path))

    def entry_point(artifact_path: Path, out: Path) -> str:
        while True:
            if hang:
                time.sleep(60)

    trial_result = run_sandboxed(entry_point, tmp_path, tmp_path, tmp_path, processor=1, patience=0.3 if hang else 60)
    assert trial_result.outcome in (f"died of {cause}", *(() if hang else ("died of SIGKILL",)))
