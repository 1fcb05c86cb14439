"""Training curves of a run as an image: training and validation loss, and accuracy or other metrics from 0 to 1."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meristem.config.errors import MeristemError
from meristem.utils import untrusted_files
from meristem.utils.system_errors import name_file_in_errors

INK_COLOR, SOFT_COLOR, ACCENT_COLOR = "#22313f", "#9fb3c8", "#c0392b"
UNIT_METRICS = frozenset({"accuracy", "intent_accuracy", "f1", "f1_micro", "f1_macro", "exact", "slot_f1", "spearman"})
"""Metrics between 0 and 1 that are plotted."""
NUMERIC_KINDS = ("train", "evaluation", "test")
"""Kinds of lines that hold only numbers."""
MAX_VALUE = 1e15
"""Largest number in a plot or a step count: far beyond it, the scale of a plot overflows."""
MetricLines = Sequence[dict[str, Any]]


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl that have a kind and a step; an incomplete last line is left out."""
    entries = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entry = untrusted_files.parse_json_line(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("kind"), str) and _is_step(entry.get("step")):
            entries.append(_numbers_only(entry) if entry["kind"] in NUMERIC_KINDS else entry)
    return entries


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_VALUE


def _numbers_only(entry: dict[str, Any]) -> dict[str, Any]:
    """A line with None for every value that is not a number or cannot be plotted."""
    return {name: value if name == "kind" or _is_drawable(value) else None for name, value in entry.items()}


def _is_drawable(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= MAX_VALUE


def draw_curves(metrics: Path, out: Path, *, title: str) -> None:
    """Write the plot as PNG or SVG, by its suffix."""
    if not can_draw():
        raise MeristemError('drawing needs matplotlib: pip install "meristem-lm[draw]"')
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = read_metrics(metrics)
    train_lines = [line for line in lines if line["kind"] == "train"]
    eval_lines = [line for line in lines if line["kind"] == "evaluation"]
    metric_names = {key for line in eval_lines for key, value in line.items() if value is not None}
    accuracies = sorted(key for key in metric_names if key in UNIT_METRICS or key.endswith((".top1", ".accuracy")))
    figure, axes = pyplot.subplots(1, 2 if accuracies else 1, figsize=(9.6 if accuracies else 5.6, 3.6), squeeze=False)
    _plot_main_metric(axes[0][0], train_lines, eval_lines, "reward" if "reward" in metric_names else "loss")
    if accuracies:
        _plot_accuracies(axes[0][1], eval_lines, accuracies)
    figure.suptitle(title, color=INK_COLOR, fontsize=11)
    figure.tight_layout()
    with name_file_in_errors(out):
        figure.savefig(out, dpi=144)
    pyplot.close(figure)


def _plot_main_metric(axis: Any, train_lines: MetricLines, eval_lines: MetricLines, name: str) -> None:
    """The loss or reward, in training and on validation samples."""
    axis.plot(
        [line["step"] for line in train_lines],
        [line.get(name) for line in train_lines],
        color=SOFT_COLOR,
        linewidth=1,
        label="training",
    )
    eval_lines = [line for line in eval_lines if line.get(name) is not None]
    if eval_lines:
        axis.plot(
            [line["step"] for line in eval_lines],
            [line[name] for line in eval_lines],
            color=INK_COLOR,
            linewidth=1.8,
            marker="o",
            markersize=3,
            label="validation",
        )
        last = eval_lines[-1]
        axis.annotate(
            f"{last[name]:.2f}",
            (last["step"], last[name]),
            textcoords="offset points",
            xytext=(-4, 8),
            color=INK_COLOR,
            ha="right",
        )
    _style_axis(axis, name)


def _plot_accuracies(axis: Any, eval_lines: MetricLines, names: Sequence[str]) -> None:
    for name, style in zip(names, ("-", "--", ":", "-."), strict=False):
        points = [(line["step"], 100 * line[name]) for line in eval_lines if line.get(name) is not None]
        axis.plot(*zip(*points, strict=True), linestyle=style, color=ACCENT_COLOR, linewidth=1.6, label=name)
    _style_axis(axis, "% on validation")


def _style_axis(axis: Any, label: str) -> None:
    axis.set_xlabel("step")
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e6ecf2", linewidth=0.8)
    axis.legend(frameon=False)
