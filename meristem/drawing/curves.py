"""A run's curves as a picture: training and validation loss, accuracy where there is one, and the rate."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.errors import MeristemError
from meristem.system_errors import naming_file

INK, SOFT, MARK = "#22313f", "#9fb3c8", "#c0392b"
SHARES = frozenset({"accuracy", "intent_accuracy", "f1", "f1_micro", "f1_macro", "exact", "slot_f1", "spearman"})
"""What tasks count from 0 to 1 and people watch."""
MEASURED = ("train", "evaluation", "test")
"""Kinds of lines that hold numbers alone."""
LARGEST = 1e15
"""Of a number in a picture or a count of steps: far beyond it, a picture's scale overflows."""
Lines = Sequence[dict[str, Any]]


def can_draw() -> bool:
    """Whether the library that draws is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl that have a kind and a step; one that is still being written is left out."""
    lines = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entry = bounded.row(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("kind"), str) and _is_step(entry.get("step")):
            lines.append(_numbers_only(entry) if entry["kind"] in MEASURED else entry)
    return lines


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _numbers_only(entry: dict[str, Any]) -> dict[str, Any]:
    """A measured line with None for every value that is no number or cannot be drawn."""
    return {name: value if name == "kind" or _is_drawable(value) else None for name, value in entry.items()}


def _is_drawable(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST


def draw(metrics: Path, out: Path, *, title: str) -> None:
    """Write the picture; its ending says whether it is a PNG or an SVG."""
    if not can_draw():
        raise MeristemError('drawing needs matplotlib: pip install "meristem[draw]"')
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = read_metrics(metrics)
    trained = [line for line in lines if line["kind"] == "train"]
    judged = [line for line in lines if line["kind"] == "evaluation"]
    named = {key for line in judged for key, value in line.items() if value is not None}
    accuracies = sorted(key for key in named if key in SHARES or key.endswith((".top1", ".accuracy")))
    figure, axes = pyplot.subplots(1, 2 if accuracies else 1, figsize=(9.6 if accuracies else 5.6, 3.6), squeeze=False)
    _followed(axes[0][0], trained, judged, "reward" if "reward" in named else "loss")
    if accuracies:
        _accuracy(axes[0][1], judged, accuracies)
    figure.suptitle(title, color=INK, fontsize=11)
    figure.tight_layout()
    with naming_file(out):
        figure.savefig(out, dpi=144)
    pyplot.close(figure)


def _followed(axis: Any, trained: Lines, judged: Lines, name: str) -> None:
    """What a run is about, in training and on validation samples."""
    axis.plot(
        [line["step"] for line in trained],
        [line.get(name) for line in trained],
        color=SOFT,
        linewidth=1,
        label="training",
    )
    judged = [line for line in judged if line.get(name) is not None]
    if judged:
        axis.plot(
            [line["step"] for line in judged],
            [line[name] for line in judged],
            color=INK,
            linewidth=1.8,
            marker="o",
            markersize=3,
            label="validation",
        )
        last = judged[-1]
        axis.annotate(
            f"{last[name]:.2f}",
            (last["step"], last[name]),
            textcoords="offset points",
            xytext=(-4, 8),
            color=INK,
            ha="right",
        )
    _dress(axis, name)


def _accuracy(axis: Any, judged: Lines, names: Sequence[str]) -> None:
    for name, style in zip(names, ("-", "--", ":", "-."), strict=False):
        points = [(line["step"], 100 * line[name]) for line in judged if line.get(name) is not None]
        axis.plot(*zip(*points, strict=True), linestyle=style, color=MARK, linewidth=1.6, label=name)
    _dress(axis, "% on validation")


def _dress(axis: Any, label: str) -> None:
    axis.set_xlabel("step")
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e6ecf2", linewidth=0.8)
    axis.legend(frameon=False)
