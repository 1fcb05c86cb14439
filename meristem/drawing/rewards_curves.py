"""The pictures in a reward run's report: its steps, rewards before and after, and choosing the best of N instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from meristem.drawing.page import own
from meristem.drawing.rewards import BestOf, Moment, RewardReport, Value, as_good_as, known, number
from meristem.drawing.svg import Line, chart, histograms

SMALL, LARGE = (320.0, 184.0), (660.0, 270.0)


def distributions(report: RewardReport) -> Iterator[str]:
    """Every text's reward, before and after."""
    sets = [("before", known(report.before)), ("after", known(report.after))]
    drawn = histograms(sets, label="How the reward is distributed before and after")
    if drawn:
        yield f'<h2>The reward of every text</h2>\n<div class="wide"><figure class="large">{drawn}</figure></div>'


def curves(report: RewardReport) -> Iterator[str]:
    """Each quantity in a chart of its own, the whole reward in the largest."""
    names = list(dict.fromkeys(name for one in (*report.train, *report.validation) for name in one.parts))
    parts: list[tuple[str, Callable[[Moment], Value]]] = [(name, _part(name)) for name in names]
    target = [("target", report.kl_target)] if report.kl_target is not None else []
    charts = [_curve(report, own(f"reward: {name}", 80), name, pick) for name, pick in parts]
    charts += [
        _curve(report, "KL from the start, nats", "KL", lambda one: one.kl, target),
        _curve(report, "coefficient of KL", "coefficient", lambda one: one.coefficient),
        _curve(report, "entropy", "entropy", lambda one: one.entropy),
        _curve(report, "length, tokens", "length", lambda one: one.length),
        _curve(report, "distinct-2", "distinct-2", lambda one: one.distinct2),
    ]
    whole = _curve(report, "total reward", "reward", lambda one: one.reward, size=LARGE)
    if whole or any(charts):
        yield '<h2>The run, step by step</h2>\n<ul class="legend"><li><i class="train"></i>training</li>'
        yield '<li><i class="held"></i>validation</li>'
        yield '<li><i class="target"></i>target</li></ul>' if target else "</ul>"
        yield f'<div class="charts">{whole}{"".join(charts)}</div>'
        yield '<p class="soft">Point at a curve to read its numbers.</p>'


def _part(name: str) -> Callable[[Moment], Value]:
    return lambda one: one.parts.get(name)


def _curve(
    report: RewardReport,
    title: str,
    label: str,
    pick: Callable[[Moment], Value],
    targets: Sequence[tuple[str, Value]] = (),
    size: tuple[float, float] = SMALL,
) -> str:
    """One quantity while training and on validation; empty where nobody measured it."""
    lines = [
        Line(name="training", kind="train", points=_points(report.train, pick)),
        Line(name="validation", kind="held", points=_points(report.validation, pick), dots=True),
    ]
    steps = [x for line in lines for x, _ in line.points]
    if not steps:
        return ""
    for name, value in targets:
        if value is not None:
            lines.append(Line(name=name, kind="target", points=[(min(steps), value), (max(steps), value)]))
    last = next((points[-1][1] for points in (lines[1].points, lines[0].points) if points), None)
    drawn = chart(lines, label=f"{label} by step", width=size[0], height=size[1])
    kind = ' class="large"' if size == LARGE else ""
    return f"<figure{kind}><figcaption>{title} <b>{number(last)}</b></figcaption>{drawn}</figure>"


def _points(moments: Sequence[Moment], pick: Callable[[Moment], Value]) -> list[tuple[float, float]]:
    found = [(float(one.step), pick(one)) for one in moments]
    return [(step, value) for step, value in found if value is not None and math.isfinite(value)]


def best_of(report: RewardReport) -> Iterator[str]:
    """What the start reaches when it writes N texts and keeps the best, beside the trained model."""
    rows = sorted(report.best_of, key=lambda one: one.count)
    if not rows:
        return
    yield "<h2>Beside choosing the best of N</h2>"
    if (count := as_good_as(report)) is not None:
        yield f"<p>By the mean reward, one trained text is worth the best of about {count:.1f} of the start.</p>"
    lines = [
        Line(name="start", kind="before", points=_counted(rows, lambda one: one.start), dots=True),
        Line(name="trained", kind="after", points=_counted(rows, lambda one: one.trained), dots=True),
    ]
    at = [(math.log2(one.count), str(one.count)) for one in rows]
    drawn = chart(lines, label="Mean reward of the best of N", unit="best of", at=at, width=440, height=210)
    yield f'<div class="two"><figure>{drawn}<figcaption class="legend"><span><i class="before"></i>start</span>'
    yield '<span><i class="after"></i>trained</span></figcaption></figure>'
    yield '<div class="wide"><table class="numbers"><thead><tr><th scope="col">best of</th><th scope="col">start</th>'
    yield '<th scope="col">trained</th></tr></thead><tbody>'
    for one in rows:
        cells = f"<td>{number(one.start)}</td><td>{number(one.trained)}</td>"
        yield f'<tr><th scope="row">{one.count}</th>{cells}</tr>'
    yield "</tbody></table></div></div>"
    yield '<p class="soft">The mean reward of the text that is kept. Choosing takes no training, but N times the '
    yield "writing.</p>"


def _counted(rows: Sequence[BestOf], pick: Callable[[BestOf], Value]) -> list[tuple[float, float]]:
    found = [(math.log2(one.count), pick(one)) for one in rows if one.count > 0]
    return [(count, value) for count, value in found if value is not None and math.isfinite(value)]
