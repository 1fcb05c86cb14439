"""Reward report as one HTML file: warnings, judges, metrics before and after, charts and texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from meristem.drawing.html_page import render_page
from meristem.drawing.reward_report import (
    BestOfResult,
    OptionalFloat,
    RewardReport,
    RewardStepMetrics,
    equivalent_best_of,
    finite_mean,
    finite_values,
    format_number,
    format_p_value,
    summarize,
)
from meristem.drawing.svg_charts import ChartLine, histograms, line_chart
from meristem.drawing.thumbnails import DATA_URI_PREFIX

MAX_TEXT_CHARS = 1200
"""Characters of a text that are shown, at most."""
SEVERITY_LABELS = {"serious": "Serious", "mild": "Check this"}
SMALL_CHART, LARGE_CHART = (320.0, 184.0), (660.0, 270.0)


def render_reward_report(report: RewardReport) -> str:
    """The complete HTML file."""
    return render_page(
        "reward_report.html",
        title=f"{report.name}: rewards",
        date=report.date,
        stylesheets=("charts.css", "rewards.css"),
        report=report,
        summary=summarize(report),
        mean_before=finite_mean(report.before),
        mean_after=finite_mean(report.after),
        distribution=reward_histograms(report),
        charts=reward_curves(report),
        best_of=best_of_comparison(report),
        number=format_number,
        format_p_value=format_p_value,
        severity_labels=SEVERITY_LABELS,
        max_text_chars=MAX_TEXT_CHARS,
        image_prefix=DATA_URI_PREFIX,
    )


# ------------------------------------------------------------ charts


@dataclass(frozen=True, kw_only=True)
class RewardChart:
    """The curve of one metric."""

    title: str
    last: OptionalFloat
    """The last value, on validation where there is one."""
    svg: str
    is_large: bool


@dataclass(frozen=True, kw_only=True)
class BestOfComparison:
    """Best-of-N of the starting model, compared with the trained model."""

    rows: Sequence[BestOfResult]
    equivalent: OptionalFloat
    """The N whose best text has the reward of one text of the trained model."""
    svg: str


def reward_histograms(report: RewardReport) -> str:
    """Histograms of the reward before and after; empty where there is nothing to draw."""
    sets = [("before", finite_values(report.before)), ("after", finite_values(report.after))]
    return histograms(sets, label="Distribution of the reward before and after")


def reward_curves(report: RewardReport) -> list[RewardChart]:
    """One chart per metric; the total reward is the first and largest."""
    names = list(dict.fromkeys(name for step in (*report.train, *report.validation) for name in step.parts))
    charts = [
        _curve(report, "total reward", "reward", lambda step: step.reward, size=LARGE_CHART),
        *(_curve(report, f"reward: {name}", name, _part_getter(name)) for name in names),
        _curve(report, "KL to the reference model, nats", "KL", lambda step: step.kl, report.kl_target),
        _curve(report, "KL coefficient", "coefficient", lambda step: step.coefficient),
        _curve(report, "entropy", "entropy", lambda step: step.entropy),
        _curve(report, "length, tokens", "length", lambda step: step.length),
        _curve(report, "distinct-2", "distinct-2", lambda step: step.distinct2),
    ]
    return [chart for chart in charts if chart is not None]


def _part_getter(name: str) -> Callable[[RewardStepMetrics], OptionalFloat]:
    return lambda step: step.parts.get(name)


def _curve(
    report: RewardReport,
    title: str,
    label: str,
    get_value: Callable[[RewardStepMetrics], OptionalFloat],
    target: OptionalFloat = None,
    size: tuple[float, float] = SMALL_CHART,
) -> RewardChart | None:
    """One metric in training and on validation; None where it was not measured."""
    lines = [
        ChartLine(name="training", css_class="train", points=_points(report.train, get_value)),
        ChartLine(name="validation", css_class="held", points=_points(report.validation, get_value), markers=True),
    ]
    steps = [x for line in lines for x, _ in line.points]
    if not steps:
        return None
    if target is not None:
        lines.append(ChartLine(name="target", css_class="target", points=[(min(steps), target), (max(steps), target)]))
    last = next((points[-1][1] for points in (lines[1].points, lines[0].points) if points), None)
    svg = line_chart(lines, label=f"{label} by step", width=size[0], height=size[1])
    return RewardChart(title=title, last=last, svg=svg, is_large=size == LARGE_CHART)


def _points(
    steps: Sequence[RewardStepMetrics], get_value: Callable[[RewardStepMetrics], OptionalFloat]
) -> list[tuple[float, float]]:
    return _measured((float(step_metrics.step), get_value(step_metrics)) for step_metrics in steps)


def _measured(points: Iterable[tuple[float, OptionalFloat]]) -> list[tuple[float, float]]:
    """The points with a finite value."""
    return [(x, value) for x, value in points if value is not None and math.isfinite(value)]


def best_of_comparison(report: RewardReport) -> BestOfComparison | None:
    """Best-of-N of the starting model, compared with the trained model; None where it was not measured."""
    rows = sorted((result for result in report.best_of if result.count > 0), key=lambda result: result.count)
    if not rows:
        return None
    log_counts = [math.log2(result.count) for result in rows]
    start, trained = (
        _measured(zip(log_counts, values, strict=True))
        for values in ([result.start for result in rows], [result.trained for result in rows])
    )
    lines = [
        ChartLine(name="start", css_class="before", points=start, markers=True),
        ChartLine(name="trained", css_class="after", points=trained, markers=True),
    ]
    x_ticks = [(x, str(result.count)) for x, result in zip(log_counts, rows, strict=True)]
    svg = line_chart(
        lines, label="Mean reward of the best of N", x_label="best of", x_ticks=x_ticks, width=440, height=210
    )
    return BestOfComparison(rows=rows, equivalent=equivalent_best_of(report), svg=svg)
