"""TensorBoard event files: if they cannot be written, the run continues without them."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import pytest
from rich.console import Console

from meristem.training.run_logger import RunLogger
from meristem.training.trackers.tensorboard import TensorBoardTracker


def test_a_run_continues_if_its_event_files_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file, where a folder should be", encoding="utf-8")
    with RunLogger(tmp_path, Console(file=io.StringIO())) as journal:
        journal.write_metrics("train", 1, {"loss": 2.5})
    assert '"loss": 2.5' in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
    assert "TensorBoard events are no longer written: " in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_event_files_that_cannot_be_written_later_are_reported_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages: list[str] = []
    events = TensorBoardTracker(tmp_path, last_step=0, log=messages.append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (128, before[1]))  # TensorBoard's own thread meets it
        for step in range(100):
            events.add_scalars("train", step, {"loss": 0.5, "tokens_per_second": 3})
        events.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert messages == ["TensorBoard events are no longer written: File too large"]
    assert "Traceback" not in capfd.readouterr().err
