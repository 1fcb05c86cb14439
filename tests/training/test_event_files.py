"""TensorBoard's event files: a disk that refuses them costs the events, never the run."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import pytest
from rich.console import Console

from meristem.training.event_files import EventFiles
from meristem.training.journal import Journal


def test_a_run_goes_on_where_its_events_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file, where a folder should be", encoding="utf-8")
    with Journal(tmp_path, Console(file=io.StringIO())) as journal:
        journal.record("train", 1, {"loss": 2.5})
    assert '"loss": 2.5' in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
    assert "TensorBoard's events are not written from here on: " in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_events_that_the_disk_refuses_later_are_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    events = EventFiles(tmp_path, after=0, say=said.append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (128, before[1]))  # TensorBoard's own thread meets it
        for step in range(100):
            events.add("train", step, {"loss": 0.5, "tokens_per_second": 3, "note": "no number"})
        events.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == ["TensorBoard's events are not written from here on: File too large"]
    assert "Traceback" not in capfd.readouterr().err
