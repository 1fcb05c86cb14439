"""metrics.jsonl as the page draws it: read on, never again; thinned, and still true."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meristem.serving.studio.run_curves import MAX_COLUMNS, MAX_EVENTS, RunCurves, downsample


def line(step: int, kind: str = "train", **values: Any) -> str:
    return json.dumps({"step": step, "kind": kind, **values}) + "\n"


def curve_points(curves: RunCurves, name: str, kind: str = "train", **options: Any) -> tuple[list[float], list[float]]:
    matching_series = [
        series
        for series in curves.series(options.pop("axis", "step"), **options)
        if (series["name"], series["kind"]) == (name, kind)
    ]
    return (matching_series[0]["x"], matching_series[0]["y"]) if matching_series else ([], [])


def test_a_line_that_is_half_written_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    full_line = line(2, loss=3.5)
    path.write_text(line(1, loss=4.0) + full_line[:17])
    curves = RunCurves(path)
    curves.refresh()
    assert curve_points(curves, "loss") == ([1], [4.0])
    before = curves.revision
    with path.open("a") as file:
        file.write(full_line[17:])
    curves.refresh()
    assert curve_points(curves, "loss") == ([1, 2], [4.0, 3.5])
    assert curves.revision != before


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, loss=4.0) + line(2, loss=3.0))
    curves = RunCurves(path)
    curves.refresh()
    with path.open("r+") as file:  # whoever reads from the start would lose both points
        file.write("#" * (path.stat().st_size - 1))
        file.seek(0, 2)
        file.write(line(3, loss=2.0))
    curves.refresh()
    assert curve_points(curves, "loss") == ([1, 2, 3], [4.0, 3.0, 2.0])


def test_a_file_that_was_replaced_or_cut_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step, loss=float(step)) for step in range(1, 9)))
    curves = RunCurves(path)
    curves.refresh()
    (tmp_path / "new").write_text(line(1, loss=9.0))
    (tmp_path / "new").rename(path)
    curves.refresh()
    assert curve_points(curves, "loss") == ([1], [9.0])
    with path.open("r+") as file:
        file.truncate(0)
    curves.refresh()
    assert curve_points(curves, "loss") == ([], [])
    path.unlink()
    curves.refresh()
    assert curves.series("step") == []


def test_strange_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        line(1, loss=1.0, note="text", many=[1, 2])
        + "not json\n[1, 2]\n{}\n\n"
        + '{"step": "x", "kind": "train", "loss": 1}\n'
        + '{"step": 2, "kind": "train", "loss": NaN}\n'
        + '{"step": 3, "kind": "train", "loss": Infinity}\n'
        + '{"step": 4, "kind": "train", "loss": 1' + "0" * 400 + "}\n"
        + "[" * 100_000 + "\n"
        + line(5, loss=2.0, late=7.0)
        + line(5, kind="stopped", why="enough")
    )  # fmt: skip
    curves = RunCurves(path)
    curves.refresh()
    assert curve_points(curves, "loss") == ([1, 5], [1.0, 2.0])
    assert curve_points(curves, "late") == ([5], [7.0])
    assert curves.events == [{"step": 5, "kind": "stopped", "why": "enough"}]


def test_names_and_events_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, **{f"m{n}": 1.0 for n in range(1000)}) + line(2, kind="skipped") * 1000)
    curves = RunCurves(path)
    curves.refresh()
    assert len(curves.tables["train"].columns) == MAX_COLUMNS and len(curves.events) == MAX_EVENTS


def test_the_axes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    train = [line(step, loss=1.0, tokens=step * 100, seconds=step * 6.0) for step in (10, 20, 30)]
    path.write_text("".join([*train[:2], line(15, kind="evaluation", loss=2.0), train[2]]))
    curves = RunCurves(path)
    curves.refresh()
    assert curve_points(curves, "loss", axis="tokens")[0] == [1000, 2000, 3000]
    assert curve_points(curves, "loss", axis="minutes")[0] == [1, 2, 3]
    assert curve_points(curves, "loss", axis="flops", flops_per_token=2.0)[0] == [2000, 4000, 6000]
    assert curve_points(curves, "loss", axis="flops") == ([], []), "nobody said what a token costs"
    assert curve_points(curves, "loss", "evaluation", axis="minutes")[0] == [1.5]
    assert curve_points(curves, "loss", x_range=(19, 21))[0] == [10, 20, 30], "one beyond each end"
    assert curve_points(curves, "loss", x_range=(40, 50))[0] == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(10, 200))
def test_thinned_curves_keep_their_ends_and_extremes(values: list[float], max_points: int) -> None:
    x, y = np.arange(len(values), dtype=float), np.array(values)
    thin_x, thin_y = downsample(x, y, max_points)
    assert len(thin_x) <= max_points or len(thin_x) == len(x)
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    assert (thin_y.min(), thin_y.max()) == (y.min(), y.max())
    assert (np.diff(thin_x) > 0).all() and (y[thin_x.astype(int)] == thin_y).all()


def test_ten_long_runs_stay_quick(tmp_path: Path) -> None:
    """10 × 50,000 points: the first look may read them all, every further one only what is new."""
    text = "".join(
        f'{{"step": {n}, "kind": "train", "loss": {5 + math.sin(n):.5f}, "rate": 0.001, "tokens": {n * 4096}}}\n'
        for n in range(1, 50_001)
    )
    runs = []
    for number in range(10):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(text)
        runs.append(RunCurves(path))
    start = time.process_time()
    for curves in runs:
        curves.refresh()
    first = time.process_time() - start
    for number in range(10):
        with (tmp_path / f"{number}.jsonl").open("a") as file:
            file.write(line(50_001, loss=4.0))
    start = time.process_time()
    sizes = []
    for curves in runs:
        curves.refresh()
        sizes.append(len(json.dumps(curves.series("tokens", points=600))))
    second_duration = time.process_time() - start
    assert curve_points(runs[0], "loss")[0][-1] == 50_001
    assert max(sizes) < 64_000
    assert first < 30 and second_duration < 1.5, (
        first,
        second_duration,
    )  # about 2 s and 0.1 s on a machine with nothing else to do
