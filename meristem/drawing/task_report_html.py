"""Task report as one self-contained HTML file: no scripts, no external resources, all text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from meristem.drawing.html_page import CHART_STYLESHEET, escape_content, escape_html, render_page
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
from meristem.interfaces.task import ConfusionMatrix

MAX_MATRIX_LABELS, UPRIGHT_LABELS = 50, 8
"""Most labels of a confusion matrix, and the number from which on their names are rotated."""
MAX_CONFUSIONS = 12
PERCENT_METRICS = frozenset({"bleu", "chrf"})
"""Metrics from 0 to 100."""


def render_task_report(report: TaskReport) -> str:
    """The complete HTML file."""
    parts = [
        *_head(report),
        *_metrics_table(report),
        *_notices_section(report),
        *_confusion_section(report.result.confusion),
        *_mistakes_table(report),
        *_curves_section(report),
        *_provenance_section(report),
    ]
    return render_page(f"{report.name}: {report.task}", parts, CHART_STYLESHEET, date=report.date)


def _head(report: TaskReport) -> Iterator[str]:
    result, name = report.result, next(iter(report.metric_names), "")
    yield f"<h1>{escape_html(report.name)}</h1>"
    date = f" · {escape_html(report.date)}" if report.date else ""
    yield f'<p class="soft">{escape_html(report.task)} · {escape_html(report.model)}{date}</p>'
    if name:
        interval = f"95 % interval: {_format_interval(report, name)}" if name in result.intervals else ""
        yield (
            f'<p class="lead"><b>{format_metric(result.metrics[name])}</b> '
            f"<span>{escape_html(name)} on {result.num_samples:,} "
            f'{escape_html(report.split)} samples</span> <span class="soft">{interval}</span></p>'
        )


def _format_interval(report: TaskReport, name: str) -> str:
    low, high = report.result.intervals[name]
    return f"{format_metric(low)} – {format_metric(high)}"


# ------------------------------------------------------------ metrics


def _metrics_table(report: TaskReport) -> Iterator[str]:
    result = report.result
    yield '<h2>Metrics</h2>\n<div class="wide"><table class="numbers"><thead><tr>'
    yield '<th scope="col">metric</th><th scope="col">value</th><th class="bar"></th>'
    yield '<th scope="col" class="between">95 % interval</th>'
    yield (
        "".join(f'<th scope="col">{escape_content(name, 60)}</th>' for name in report.baselines)
        + "</tr></thead><tbody>"
    )
    for name in report.metric_names:
        baseline_values = [metrics[name] for metrics in report.baselines.values() if name in metrics]
        interval = _format_interval(report, name) if name in result.intervals else ""
        cells = [
            f"<td>{format_metric(metrics[name]) if name in metrics else ''}</td>"
            for metrics in report.baselines.values()
        ]
        yield (
            f'<tr><th scope="row" class="name">{escape_content(name, 80)}</th>'
            f'<td class="value">{format_metric(result.metrics[name])}</td>'
            f'<td class="bar">{_range_bar(report, name, baseline_values)}</td><td class="between">{interval}</td>'
            f"{''.join(cells)}</tr>"
        )
    yield "</tbody></table></div>"
    yield (
        '<p class="soft">95 % bootstrap intervals over 1,000 resamples of the same samples, or Wilson’s where nearly '
        "all or nearly none are correct. Dotted: baselines without a model.</p>"
    )
    if result.signature:
        yield f'<p class="soft">Computed as {escape_html(result.signature)}</p>'


def _range_bar(report: TaskReport, name: str, baselines: Sequence[float]) -> str:
    """A bar with the value, its interval and the baselines; empty for metrics without a fixed range."""
    value = report.result.metrics[name]
    low, high = report.result.intervals.get(name, (value, value))
    scale = 100.0 if name in PERCENT_METRICS else 1.0
    if (
        name.endswith(("loss", "error", "perplexity", "layer"))
        or not 0 <= low <= high <= scale
        or not 0 <= value <= scale
    ):
        return ""
    marks = [f'<i class="range" style="left:{100 * low / scale:.2f}%;width:{100 * (high - low) / scale:.2f}%"></i>']
    marks += [
        f'<i class="base" style="left:{100 * baseline / scale:.2f}%"></i>'
        for baseline in baselines
        if 0 <= baseline <= scale
    ]
    marks.append(f'<i class="point" style="left:{100 * value / scale:.2f}%"></i>')
    return f'<span class="track" aria-hidden="true">{"".join(marks)}</span>'


# ------------------------------------------------------------ confusions and mistakes


def _confusion_section(confusion: ConfusionMatrix | None) -> Iterator[str]:
    if confusion is None or len(confusion.labels) < 2:
        return
    shown_labels = hardest_labels(confusion, MAX_MATRIX_LABELS)
    yield '<h2>Confusion matrix</h2>\n<p class="soft">Rows: gold labels. Columns: predicted labels.'
    if len(shown_labels.labels) < len(confusion.labels):
        yield f" The {len(shown_labels.labels)} of {len(confusion.labels)} labels with the most mistakes."
    layout_class, upright_class = ("broad", " many") if len(shown_labels.labels) >= UPRIGHT_LABELS else ("fits", "")
    yield f'</p>\n<div class="wide {layout_class}"><table class="matrix{upright_class}"><thead><tr><th></th>'
    yield (
        "".join(f'<th scope="col">{escape_content(label, 24)}</th>' for label in shown_labels.labels)
        + "</tr></thead><tbody>"
    )
    for row, label in enumerate(shown_labels.labels):
        counts = shown_labels.matrix[row].tolist()
        cells = [_matrix_cell(count, count / max(1, sum(counts)), column == row) for column, count in enumerate(counts)]
        yield f'<tr><th scope="row">{escape_content(label, 40)}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"
    if confused_pairs := top_confusions(confusion, MAX_CONFUSIONS):
        yield "<h2>Most frequent confusions</h2>\n<ul>"
        for pair in confused_pairs:
            yield (
                f"<li>{escape_content(pair.gold, 60)} predicted as {escape_content(pair.prediction, 60)}: "
                f"{pair.count:,} times, {100 * pair.share:.0f} % of its samples</li>"
            )
        yield "</ul>"
    yield from _per_label_table(confusion)


def _matrix_cell(count: int, share: float, is_correct: bool) -> str:
    if not count:
        return '<td class="none">·</td>' if not is_correct else '<td class="right">0</td>'
    color = "--good" if is_correct else "--bad"
    kind = ' class="right"' if is_correct else ""
    return f'<td{kind} style="background:rgba(var({color}),{0.12 + 0.5 * share:.2f})">{count:,}</td>'


def _per_label_table(confusion: ConfusionMatrix) -> Iterator[str]:
    label_metrics, summary = per_label_metrics(confusion), "Metrics of every label"
    if len(label_metrics) > MOST_LABELS:
        summary = f"The {MOST_LABELS:,} of {len(label_metrics):,} labels with the most missed samples"
        label_metrics.sort(key=lambda entry: entry.samples * (entry.recall - 1))
    yield f'<details><summary>{summary}</summary>\n<div class="wide"><table class="labels"><thead><tr>'
    headings = ("label", "samples", "precision", "recall", "F1")
    yield "".join(f'<th scope="col">{name}</th>' for name in headings) + "</tr></thead><tbody>"
    for entry in label_metrics[:MOST_LABELS]:
        cells = "".join(f"<td>{share:.3f}</td>" for share in (entry.precision, entry.recall, entry.f1))
        yield f'<tr><th scope="row">{escape_content(entry.label, 60)}</th><td>{entry.samples:,}</td>{cells}</tr>'
    yield "</tbody></table></div></details>"


def _mistakes_table(report: TaskReport) -> Iterator[str]:
    if not report.result.mistakes:
        return
    yield f"<h2>{'Largest errors' if report.confidence_label == 'off by' else 'Most confident mistakes'}</h2>"
    yield '<div class="wide"><table class="mistakes"><thead><tr><th scope="col" class="given">input</th>'
    yield '<th scope="col">gold</th><th scope="col">predicted</th>'
    yield f'<th scope="col" class="sure">{report.confidence_label}</th></tr></thead><tbody>'
    for mistake in report.result.mistakes:
        yield (
            f'<tr><td class="given">{escape_content(mistake.input_text)}'
            f'<span class="place">{escape_content(mistake.location, 200)}</span></td>'
            f'<td class="gold">{escape_content(mistake.gold)}</td>'
            f'<td class="said">{escape_content(mistake.prediction)}</td>'
            f'<td class="sure">{report.format_confidence(mistake.confidence)}</td></tr>'
        )
    yield "</tbody></table></div>"


# ------------------------------------------------------------ data and recipe


def _notices_section(report: TaskReport) -> Iterator[str]:
    if report.notices:
        lines = "".join(f"<li>{escape_content(line)}</li>" for line in report.notices)
        yield f'<h2>Notes on the data</h2>\n<ul class="notices">{lines}</ul>'


def _curves_section(report: TaskReport) -> Iterator[str]:
    """The loss in training and on validation samples, and metrics from 0 to 1, drawn in the page's colors."""
    names = dict.fromkeys(
        ["loss", report.metric, *(name for line in report.curves for name in line if name in UNIT_METRICS)]
    )
    charts = [svg for name in names if (svg := _curve(report, name))]
    if charts:
        yield '<h2>Training curves</h2>\n<ul class="legend"><li><i class="train"></i>training</li>'
        yield f'<li><i class="held"></i>validation</li></ul>\n<div class="charts">{"".join(charts)}</div>'


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
    svg = line_chart([line for line in lines if line.points], label=f"{name} by step")
    return f"<figure><figcaption>{escape_content(name, 80)}</figcaption>{svg}</figure>" if svg else ""


def _provenance_section(report: TaskReport) -> Iterator[str]:
    sizes = ", ".join(f"{size:,} {split}" for split, size in report.split_sizes.items())
    yield f"<h2>Data</h2>\n<p>{escape_html(sizes)} samples</p>"
    if report.sources:
        yield "<ul>" + "".join(f"<li>{escape_content(line.replace('`', ''))}</li>" for line in report.sources) + "</ul>"
    if report.commands:
        lines = escape_html("\n".join(report.commands))
        yield f'<h2>Use it</h2>\n<div class="wide"><pre>{lines}</pre></div>'
    if report.recipe:
        text = escape_html(yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True))
        yield "<h2>Recipe</h2>\n<details><summary>All settings</summary>"
        yield f'<div class="wide"><pre>{text}</pre></div></details>'
