"""Training curves from a foreign metrics.jsonl: values that are not numbers are ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from meristem.drawing.training_curves import can_draw, draw_curves, read_metrics
from meristem.training.run_logger import RunLogger

GOOD = [{"kind": kind, "step": step, "loss": 2.5} for step in (1, 2) for kind in ("train", "evaluation")]
BAD = [{"step": 1, "loss": 2.0}, {"kind": "train", "loss": 2.0}, {"kind": [], "step": 1},
       {"kind": "train", "step": "x"}, {"kind": "train", "step": 10**30}, [], 17, None]  # fmt: skip
VALUES = ["x", [1], {"x": 1}, 1e308, 10**30, float("inf")]


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    measured = [{"kind": "evaluation", "step": 2, "loss": value, "accuracy": value} for value in VALUES]
    path.write_bytes(b"\n".join([*(json.dumps(line).encode() for line in [*BAD, *measured, *GOOD]), b"\xff\xfe", b""]))
    return path


def test_only_numbers_of_a_step_are_read_and_drawn(metrics: Path, tmp_path: Path) -> None:
    lines = read_metrics(metrics)
    assert lines[len(VALUES) :] == GOOD
    assert all(line["loss"] is None for line in lines[: len(VALUES)])
    if can_draw():
        draw_curves(metrics, tmp_path / "curves.png", title="x")
        assert (tmp_path / "curves.png").stat().st_size > 1000


def test_the_run_logger_ignores_lines_without_a_kind(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"kind": "test"}\n{"kind": "test", "step": 4}\n')
    with RunLogger(tmp_path, Console(quiet=True)) as journal:
        assert journal.has_metrics("test", 4)
        assert not journal.has_metrics("test", 5)
