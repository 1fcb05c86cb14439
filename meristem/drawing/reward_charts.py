"""Charts of a reward report: training curves, histograms of the reward before and after, and best-of-N."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from meristem.drawing.html_page import escape_content
from meristem.drawing.reward_report import (
    BestOfResult,
    OptionalFloat,
    RewardReport,
    RewardStepMetrics,
    equivalent_best_of,
    finite_values,
    format_number,
)
from meristem.drawing.svg_charts import ChartLine, histograms, line_chart

SMALL_CHART, LARGE_CHART = (320.0, 184.0), (660.0, 270.0)


def reward_histograms(report: RewardReport) -> Iterator[str]:
    """Histograms of the reward before and after."""
    sets = [("before", finite_values(report.before)), ("after", finite_values(report.after))]
    svg = histograms(sets, label="Distribution of the reward before and after")
    if svg:
        yield f'<h2>Distribution of the reward</h2>\n<div class="wide"><figure class="large">{svg}</figure></div>'


def reward_curves(report: RewardReport) -> Iterator[str]:
    """One chart per metric; the total reward is the largest."""
    names = list(dict.fromkeys(name for step in (*report.train, *report.validation) for name in step.parts))
    parts: list[tuple[str, Callable[[RewardStepMetrics], OptionalFloat]]] = [
        (name, _part_getter(name)) for name in names
    ]
    target = [("target", report.kl_target)] if report.kl_target is not None else []
    charts = [_curve(report, escape_content(f"reward: {name}", 80), name, get_value) for name, get_value in parts]
    charts += [
        _curve(report, "KL to the reference model, nats", "KL", lambda step: step.kl, target),
        _curve(report, "KL coefficient", "coefficient", lambda step: step.coefficient),
        _curve(report, "entropy", "entropy", lambda step: step.entropy),
        _curve(report, "length, tokens", "length", lambda step: step.length),
        _curve(report, "distinct-2", "distinct-2", lambda step: step.distinct2),
    ]
    total_chart = _curve(report, "total reward", "reward", lambda step: step.reward, size=LARGE_CHART)
    if total_chart or any(charts):
        yield '<h2>Training curves</h2>\n<ul class="legend"><li><i class="train"></i>training</li>'
        yield '<li><i class="held"></i>validation</li>'
        yield '<li><i class="target"></i>target</li></ul>' if target else "</ul>"
        yield f'<div class="charts">{total_chart}{"".join(charts)}</div>'
        yield '<p class="soft">Hover over a curve to read its values.</p>'


def _part_getter(name: str) -> Callable[[RewardStepMetrics], OptionalFloat]:
    return lambda step: step.parts.get(name)


def _curve(
    report: RewardReport,
    title: str,
    label: str,
    get_value: Callable[[RewardStepMetrics], OptionalFloat],
    targets: Sequence[tuple[str, OptionalFloat]] = (),
    size: tuple[float, float] = SMALL_CHART,
) -> str:
    """One metric in training and on validation; empty where it was not measured."""
    lines = [
        ChartLine(name="training", css_class="train", points=_points(report.train, get_value)),
        ChartLine(name="validation", css_class="held", points=_points(report.validation, get_value), markers=True),
    ]
    steps = [x for line in lines for x, _ in line.points]
    if not steps:
        return ""
    for name, value in targets:
        if value is not None:
            lines.append(ChartLine(name=name, css_class="target", points=[(min(steps), value), (max(steps), value)]))
    last = next((points[-1][1] for points in (lines[1].points, lines[0].points) if points), None)
    svg = line_chart(lines, label=f"{label} by step", width=size[0], height=size[1])
    css_class = ' class="large"' if size == LARGE_CHART else ""
    return f"<figure{css_class}><figcaption>{title} <b>{format_number(last)}</b></figcaption>{svg}</figure>"


def _points(
    steps: Sequence[RewardStepMetrics], get_value: Callable[[RewardStepMetrics], OptionalFloat]
) -> list[tuple[float, float]]:
    values = [(float(step_metrics.step), get_value(step_metrics)) for step_metrics in steps]
    return [(step, value) for step, value in values if value is not None and math.isfinite(value)]


def best_of_section(report: RewardReport) -> Iterator[str]:
    """Best-of-N of the starting model, compared with the trained model."""
    rows = sorted(report.best_of, key=lambda result: result.count)
    if not rows:
        return
    yield "<h2>Comparison with best-of-N sampling</h2>"
    if (count := equivalent_best_of(report)) is not None:
        yield f"<p>In mean reward, one text of the trained model equals the best of about {count:.1f} of the start.</p>"
    lines = [
        ChartLine(
            name="start", css_class="before", points=_best_of_points(rows, lambda result: result.start), markers=True
        ),
        ChartLine(
            name="trained", css_class="after", points=_best_of_points(rows, lambda result: result.trained), markers=True
        ),
    ]
    x_ticks = [(math.log2(result.count), str(result.count)) for result in rows]
    svg = line_chart(
        lines, label="Mean reward of the best of N", x_label="best of", x_ticks=x_ticks, width=440, height=210
    )
    yield f'<div class="two"><figure>{svg}<figcaption class="legend"><span><i class="before"></i>start</span>'
    yield '<span><i class="after"></i>trained</span></figcaption></figure>'
    yield '<div class="wide"><table class="numbers"><thead><tr><th scope="col">best of</th><th scope="col">start</th>'
    yield '<th scope="col">trained</th></tr></thead><tbody>'
    for result in rows:
        cells = f"<td>{format_number(result.start)}</td><td>{format_number(result.trained)}</td>"
        yield f'<tr><th scope="row">{result.count}</th>{cells}</tr>'
    yield "</tbody></table></div></div>"
    yield '<p class="soft">The mean reward of the best text. Best-of-N takes no training, but N times the '
    yield "generation.</p>"


def _best_of_points(
    rows: Sequence[BestOfResult], get_value: Callable[[BestOfResult], OptionalFloat]
) -> list[tuple[float, float]]:
    values = [(math.log2(result.count), get_value(result)) for result in rows if result.count > 0]
    return [(count, value) for count, value in values if value is not None and math.isfinite(value)]
