"""A task's report as one HTML file that needs nothing else: no scripts, nothing fetched, every text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from meristem.drawing.curves import SHARES
from meristem.drawing.page import CHARTS, escaped, framed, own
from meristem.drawing.report import MOST_LABELS, Report, by_label, confusions, hardest, number
from meristem.drawing.svg import Line, chart
from meristem.task import Confusion

WIDEST, MANY = 50, 8
"""Labels that a matrix shows at the most, and from which on their names stand upright."""
CONFUSED = 12
HUNDRED = frozenset({"bleu", "chrf"})
"""What is counted from 0 to 100."""


def page(report: Report) -> str:
    """The whole file."""
    parts = [
        *_head(report),
        *_numbers(report),
        *_notices(report),
        *_confusion(report.judged.confusion),
        *_mistakes(report),
        *_curves(report),
        *_making(report),
    ]
    return framed(f"{report.name}: {report.task}", parts, CHARTS, date=report.date)


def _head(report: Report) -> Iterator[str]:
    judged, name = report.judged, next(iter(report.metrics), "")
    yield f"<h1>{escaped(report.name)}</h1>"
    date = f" · {escaped(report.date)}" if report.date else ""
    yield f'<p class="soft">{escaped(report.task)} · {escaped(report.model)}{date}</p>'
    if name:
        interval = f"95 % interval: {_between(report, name)}" if name in judged.intervals else ""
        yield (
            f'<p class="lead"><b>{number(judged.metrics[name])}</b> <span>{escaped(name)} on {judged.samples:,} '
            f'{escaped(report.split)} samples</span> <span class="soft">{interval}</span></p>'
        )


def _between(report: Report, name: str) -> str:
    low, high = report.judged.intervals[name]
    return f"{number(low)} – {number(high)}"


# ------------------------------------------------------------ numbers


def _numbers(report: Report) -> Iterator[str]:
    judged = report.judged
    yield '<h2>Numbers</h2>\n<div class="wide"><table class="numbers"><thead><tr>'
    yield '<th scope="col">measure</th><th scope="col">value</th><th class="bar"></th>'
    yield '<th scope="col" class="between">95 % interval</th>'
    yield "".join(f'<th scope="col">{own(name, 60)}</th>' for name in report.baselines) + "</tr></thead><tbody>"
    for name in report.metrics:
        beside = [found[name] for found in report.baselines.values() if name in found]
        interval = _between(report, name) if name in judged.intervals else ""
        cells = [f"<td>{number(found[name]) if name in found else ''}</td>" for found in report.baselines.values()]
        yield (
            f'<tr><th scope="row" class="name">{own(name, 80)}</th>'
            f'<td class="value">{number(judged.metrics[name])}</td>'
            f'<td class="bar">{_track(report, name, beside)}</td><td class="between">{interval}</td>'
            f"{''.join(cells)}</tr>"
        )
    yield "</tbody></table></div>"
    yield (
        '<p class="soft">Intervals are the middle 95 % of 1,000 sets drawn with repeats from the same samples '
        "(bootstrap), or Wilson’s where nearly all or nearly none are right. Dotted: what needs no model.</p>"
    )
    if judged.signature:
        yield f'<p class="soft">Computed as {escaped(judged.signature)}</p>'


def _track(report: Report, name: str, beside: Sequence[float]) -> str:
    """Where the number, its interval and the baselines lie between nothing and all; empty for open scales."""
    value = report.judged.metrics[name]
    low, high = report.judged.intervals.get(name, (value, value))
    scale = 100.0 if name in HUNDRED else 1.0
    if (
        name.endswith(("loss", "error", "perplexity", "layer"))
        or not 0 <= low <= high <= scale
        or not 0 <= value <= scale
    ):
        return ""
    marks = [f'<i class="range" style="left:{100 * low / scale:.2f}%;width:{100 * (high - low) / scale:.2f}%"></i>']
    marks += [f'<i class="base" style="left:{100 * one / scale:.2f}%"></i>' for one in beside if 0 <= one <= scale]
    marks.append(f'<i class="point" style="left:{100 * value / scale:.2f}%"></i>')
    return f'<span class="track" aria-hidden="true">{"".join(marks)}</span>'


# ------------------------------------------------------------ confusions and mistakes


def _confusion(confusion: Confusion | None) -> Iterator[str]:
    if confusion is None or len(confusion.labels) < 2:
        return
    shown = hardest(confusion, WIDEST)
    yield '<h2>What was taken for what</h2>\n<p class="soft">Rows: what is right. Columns: what was said.'
    if len(shown.labels) < len(confusion.labels):
        yield f" The {len(shown.labels)} of {len(confusion.labels)} labels with the most mistakes."
    room, many = ("broad", " many") if len(shown.labels) >= MANY else ("fits", "")
    yield f'</p>\n<div class="wide {room}"><table class="matrix{many}"><thead><tr><th></th>'
    yield "".join(f'<th scope="col">{own(label, 24)}</th>' for label in shown.labels) + "</tr></thead><tbody>"
    for place, label in enumerate(shown.labels):
        counts = shown.counts[place].tolist()
        cells = [_cell(count, count / max(1, sum(counts)), other == place) for other, count in enumerate(counts)]
        yield f'<tr><th scope="row">{own(label, 40)}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"
    if found := confusions(confusion, CONFUSED):
        yield "<h2>Confused most often</h2>\n<ul>"
        for one in found:
            yield (
                f"<li>{own(one.gold, 60)} was taken for {own(one.said, 60)}: {one.count:,} times, "
                f"{100 * one.share:.0f} % of its samples</li>"
            )
        yield "</ul>"
    yield from _labels(confusion)


def _cell(count: int, share: float, right: bool) -> str:
    if not count:
        return '<td class="none">·</td>' if not right else '<td class="right">0</td>'
    colour = "--good" if right else "--bad"
    kind = ' class="right"' if right else ""
    return f'<td{kind} style="background:rgba(var({colour}),{0.12 + 0.5 * share:.2f})">{count:,}</td>'


def _labels(confusion: Confusion) -> Iterator[str]:
    of_labels, summary = by_label(confusion), "Every label by itself"
    if len(of_labels) > MOST_LABELS:
        summary = f"The {MOST_LABELS:,} of {len(of_labels):,} labels that lose the most samples"
        of_labels.sort(key=lambda one: one.samples * (one.recall - 1))
    yield f'<details><summary>{summary}</summary>\n<div class="wide"><table class="labels"><thead><tr>'
    headings = ("label", "samples", "precision", "recall", "F1")
    yield "".join(f'<th scope="col">{name}</th>' for name in headings) + "</tr></thead><tbody>"
    for one in of_labels[:MOST_LABELS]:
        cells = "".join(f"<td>{share:.3f}</td>" for share in (one.precision, one.recall, one.f1))
        yield f'<tr><th scope="row">{own(one.label, 60)}</th><td>{one.samples:,}</td>{cells}</tr>'
    yield "</tbody></table></div></details>"


def _mistakes(report: Report) -> Iterator[str]:
    if not report.judged.mistakes:
        return
    yield f"<h2>{'Furthest off' if report.confidence == 'off by' else 'The most confident mistakes'}</h2>"
    yield '<div class="wide"><table class="mistakes"><thead><tr><th scope="col" class="given">given</th>'
    yield '<th scope="col">right</th><th scope="col">said</th>'
    yield f'<th scope="col" class="sure">{report.confidence}</th></tr></thead><tbody>'
    for one in report.judged.mistakes:
        yield (
            f'<tr><td class="given">{own(one.given)}<span class="place">{own(one.place, 200)}</span></td>'
            f'<td class="gold">{own(one.gold)}</td><td class="said">{own(one.said)}</td>'
            f'<td class="sure">{report.sure(one.confidence)}</td></tr>'
        )
    yield "</tbody></table></div>"


# ------------------------------------------------------------ where it comes from


def _notices(report: Report) -> Iterator[str]:
    if report.notices:
        lines = "".join(f"<li>{own(line)}</li>" for line in report.notices)
        yield f'<h2>What is strange about the data</h2>\n<ul class="notices">{lines}</ul>'


def _curves(report: Report) -> Iterator[str]:
    """The loss in training and on validation samples, and what is counted from 0 to 1: drawn in the page's colours."""
    names = dict.fromkeys(["loss", report.metric, *(name for line in report.curves for name in line if name in SHARES)])
    charts = [drawn for name in names if (drawn := _curve(report, name))]
    if charts:
        yield '<h2>The run, step by step</h2>\n<ul class="legend"><li><i class="train"></i>training</li>'
        yield f'<li><i class="held"></i>validation</li></ul>\n<div class="charts">{"".join(charts)}</div>'


def _curve(report: Report, name: str) -> str:
    kinds = {"train": ("training", "train"), "evaluation": ("validation", "held")}
    lines = [
        Line(
            name=title,
            kind=style,
            dots=kind == "evaluation",
            points=[
                (float(line["step"]), float(line[name]))
                for line in report.curves
                if line.get("kind") == kind and isinstance(line.get(name), int | float)
            ],
        )
        for kind, (title, style) in kinds.items()
    ]
    drawn = chart([line for line in lines if line.points], label=f"{name} by step")
    return f"<figure><figcaption>{own(name, 80)}</figcaption>{drawn}</figure>" if drawn else ""


def _making(report: Report) -> Iterator[str]:
    sizes = ", ".join(f"{size:,} {split}" for split, size in report.sizes.items())
    yield f"<h2>Data</h2>\n<p>{escaped(sizes)} samples</p>"
    if report.sources:
        yield "<ul>" + "".join(f"<li>{own(line.replace('`', ''))}</li>" for line in report.sources) + "</ul>"
    if report.commands:
        lines = escaped("\n".join(report.commands))
        yield f'<h2>Use it</h2>\n<div class="wide"><pre>{lines}</pre></div>'
    if report.recipe:
        text = escaped(yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True))
        yield "<h2>Recipe</h2>\n<details><summary>Every setting</summary>"
        yield f'<div class="wide"><pre>{text}</pre></div></details>'
