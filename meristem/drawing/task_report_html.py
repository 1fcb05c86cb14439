"""Task report as one self-contained HTML file: no scripts, no external resources, all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meristem.drawing.html_page import render_page
from meristem.drawing.svg_charts import ChartLine, line_chart
from meristem.drawing.task_report import (
    MOST_LABELS,
    TaskReport,
    format_metric,
    hardest_labels,
    per_label_metrics,
    top_confusions,
)
from meristem.drawing.training_curves import UNIT_METRICS
from meristem.interfaces.task_evaluation import ConfusionMatrix

MAX_MATRIX_LABELS, UPRIGHT_LABELS = 50, 8
"""Most labels of a confusion matrix, and the number from which on their names are rotated."""
MAX_CONFUSIONS = 12
PERCENT_METRICS = frozenset({"bleu", "chrf"})
"""Metrics from 0 to 100."""


def render_task_report(report: TaskReport) -> str:
    """The complete HTML file."""
    confusion = report.result.confusion
    has_matrix = confusion is not None and len(confusion.labels) >= 2
    return render_page(
        "task_report.html",
        title=f"{report.name}: {report.task}",
        date=report.date,
        stylesheets=("charts.css",),
        report=report,
        metrics=[_metric_row(report, name) for name in report.metric_names],
        charts=_curves(report),
        sources=[line.replace("`", "") for line in report.sources],
        upright_labels=UPRIGHT_LABELS,
        **(_confusion_values(confusion) if confusion is not None and has_matrix else {"matrix": None}),
    )


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """A row of the table of metrics, as text."""

    name: str
    value: str
    interval: str
    marks: Sequence[tuple[str, str]]
    """(CSS class, style) of what is drawn on the bar; empty for metrics without a fixed range."""
    baselines: Sequence[str]


def _metric_row(report: TaskReport, name: str) -> MetricRow:
    result = report.result
    bounds = [format_metric(bound) for bound in result.intervals.get(name, ())]
    baselines = [metrics.get(name) for metrics in report.baselines.values()]
    return MetricRow(
        name=name,
        value=format_metric(result.metrics[name]),
        interval=" – ".join(bounds),
        marks=_range_marks(report, name, [value for value in baselines if value is not None]),
        baselines=["" if value is None else format_metric(value) for value in baselines],
    )


def _range_marks(report: TaskReport, name: str, baselines: Sequence[float]) -> list[tuple[str, str]]:
    """The interval, the baselines and the value on a bar from 0 to 1 or 100."""
    value = report.result.metrics[name]
    low, high = report.result.intervals.get(name, (value, value))
    scale = 100.0 if name in PERCENT_METRICS else 1.0
    is_unbounded = name.endswith(("loss", "error", "perplexity", "layer"))
    if is_unbounded or not 0 <= low <= high <= scale or not 0 <= value <= scale:
        return []
    inside = [baseline for baseline in baselines if 0 <= baseline <= scale]
    return [
        ("range", f"left:{100 * low / scale:.2f}%;width:{100 * (high - low) / scale:.2f}%"),
        *(("base", f"left:{100 * baseline / scale:.2f}%") for baseline in inside),
        ("point", f"left:{100 * value / scale:.2f}%"),
    ]


def _confusion_values(confusion: ConfusionMatrix) -> dict[str, Any]:
    """The confusion matrix, the most frequent confusions and the metrics of every label, for the template."""
    label_metrics = per_label_metrics(confusion)
    if len(label_metrics) > MOST_LABELS:
        label_metrics.sort(key=lambda entry: entry.samples * (entry.recall - 1))
    return {
        "matrix": hardest_labels(confusion, MAX_MATRIX_LABELS),
        "confusions": top_confusions(confusion, MAX_CONFUSIONS),
        "labels": label_metrics[:MOST_LABELS],
        "num_per_label": len(label_metrics),
    }


def _curves(report: TaskReport) -> list[tuple[str, str]]:
    """The loss in training and on validation samples, and metrics from 0 to 1, drawn in the page's colors."""
    names = dict.fromkeys(
        ["loss", report.metric, *(name for line in report.curves for name in line if name in UNIT_METRICS)]
    )
    return [(name, svg) for name in names if (svg := _curve(report, name))]


def _curve(report: TaskReport, name: str) -> str:
    kinds = {"train": ("training", "train"), "evaluation": ("validation", "held")}
    lines = [
        ChartLine(
            name=title,
            css_class=style,
            markers=kind == "evaluation",
            points=[
                (float(line["step"]), float(line[name]))
                for line in report.curves
                if line.get("kind") == kind and isinstance(line.get(name), int | float)
            ],
        )
        for kind, (title, style) in kinds.items()
    ]
    return line_chart([line for line in lines if line.points], label=f"{name} by step")
