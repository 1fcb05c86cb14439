"""Robustness report as one self-contained HTML file: no scripts, no external resources, all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meristem.drawing.html_page import render_page
from meristem.drawing.svg_charts import ChartLine, line_chart
from meristem.drawing.task_report import format_metric
from meristem.trust.robustness.robustness_report import CalibrationCurve, NoiseResult, RobustnessReport
from meristem.trust.robustness.robustness_terminal import summary_line

OUTCOME_CLASSES = {"answered": "", "refused": "soft", "failed": "failed"}
BEHAVIOUR_NAMES = {
    "minimum_functionality": "minimum functionality",
    "invariance": "invariance",
    "direction": "direction",
}


@dataclass(frozen=True, kw_only=True)
class NoiseRow:
    """A row of the table of perturbations, as text."""

    result: NoiseResult
    value: str
    interval: str
    drop: str
    drop_interval: str
    bar: str
    """Style of the bar of the metric."""
    interval_bar: str
    """Style of its interval."""


def render_robustness(report: RobustnessReport) -> str:
    """The complete HTML file."""
    return render_page(
        "robustness_report.html",
        title=f"Robustness: {report.run}",
        date=report.date,
        stylesheets=("charts.css", "robustness.css"),
        report=report,
        summary=summary_line(report),
        clean=format_metric(report.clean[report.metric]),
        clean_interval=_interval(report.clean_interval),
        clean_bar=_position(report.clean[report.metric]),
        rows=[_noise_row(report, result) for result in report.measured],
        skipped=dict.fromkeys((result.perturbation, result.skipped) for result in report.results if result.skipped),
        summaries={result.perturbation: result.summary for result in report.results},
        flipped=[result for result in report.measured if result.examples],
        charts=_charts(report),
        outcome_classes=OUTCOME_CLASSES,
        behaviour_names=BEHAVIOUR_NAMES,
        metric_text=format_metric,
    )


def _noise_row(report: RobustnessReport, result: NoiseResult) -> NoiseRow:
    value = result.metrics[report.metric]
    low, high = result.interval or (value, value)
    return NoiseRow(
        result=result,
        value=format_metric(value),
        interval=_interval(result.interval),
        drop=format_metric(result.drop),
        drop_interval=_interval(result.drop_interval),
        bar=_position(value),
        interval_bar=f"left:{_percent(low):.2f}%;width:{max(0.0, _percent(high) - _percent(low)):.2f}%",
    )


def _interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else " – ".join(map(format_metric, bounds))


def _percent(value: float) -> float:
    """Where a metric from 0 to 1 is on its bar."""
    return 100 * min(1.0, max(0.0, value))


def _position(value: float) -> str:
    return f"left:{_percent(value):.2f}%"


def _charts(report: RobustnessReport) -> list[tuple[str, str]]:
    """The reliability diagram, and accuracy against coverage; clean and noisy."""
    sets = [("clean", "before", report.calibration), ("noisy", "after", report.noisy_calibration)]
    present = [(name, css_class, item) for name, css_class, item in sets if item is not None]
    if not present:
        return []
    diagonal = ChartLine(name="calibrated", css_class="target", points=_diagonal(present))
    return [
        (
            "Accuracy by probability (dashed: calibrated)",
            line_chart([*_reliability_lines(present), diagonal], label="accuracy by probability", x_label="probability",
                       x_ticks=PERCENT_TICKS),
        ),
        (
            "Accuracy by share of answers given",
            line_chart(_coverage_lines(present), label="accuracy by coverage", x_label="answers given",
                       x_ticks=PERCENT_TICKS),
        ),
    ]  # fmt: skip


Sets = Sequence[tuple[str, str, CalibrationCurve]]
PERCENT_TICKS = [(share / 100, f"{share} %") for share in (20, 40, 60, 80, 100)]


def _reliability_lines(sets: Sets) -> list[ChartLine]:
    return [
        ChartLine(
            name=name,
            css_class=css_class,
            markers=True,
            points=[(item.confidence, item.accuracy) for item in data.bins],
        )
        for name, css_class, data in sets
    ]


def _coverage_lines(sets: Sets) -> list[ChartLine]:
    return [
        ChartLine(
            name=name,
            css_class=css_class,
            markers=True,
            points=[(point.coverage, point.accuracy) for point in reversed(data.coverage)],
        )
        for name, css_class, data in sets
    ]


def _diagonal(sets: Sets) -> list[tuple[float, float]]:
    confidences = [item.confidence for _, _, data in sets for item in data.bins]
    return [(value, value) for value in (min(confidences), max(confidences))]
