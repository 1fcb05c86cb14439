"""The exposure report as one self-contained HTML file."""

from __future__ import annotations

import math
from pathlib import Path

from meristem.drawing.html_page import current_timestamp, render_page
from meristem.drawing.svg_charts import ChartLine, line_chart
from meristem.trust.exposure.exposure_advice import times_phrase
from meristem.trust.exposure.exposure_report import EXACT_KINDS, ExposureReport
from meristem.trust.exposure.membership import Membership
from meristem.trust.exposure.rank_exposure import EXPECTED_UNSEEN_BITS

NUM_COLORS = 8
"""Colours of comparison.css."""


def render_exposure(report: ExposureReport) -> str:
    """The HTML file as a string."""
    name = Path(report.run).name
    return render_page(
        "exposure_report.html",
        title=f"{name}: exposure",
        date=current_timestamp(),
        stylesheets=("corpus.css", "charts.css", "comparison.css", "exposure.css"),
        report=report,
        run_name=name,
        figures=_figures(report),
        times_phrase=times_phrase,
        expected=EXPECTED_UNSEEN_BITS,
        exactness=_exactness(report),
        level_chart=_level_chart(report),
        checkpoint_chart=_checkpoint_chart(report),
        checkpoint_legend=[
            (_level_class(index), f"planted {times_phrase(level.repeats)}") for index, level in enumerate(report.levels)
        ],
        membership_charts=[_roc_chart(item) for item in report.membership],
    )


def _figures(report: ExposureReport) -> list[tuple[str, str]]:
    """The most important numbers and what they count."""
    figures = []
    if report.levels:
        first, last = report.levels[0], report.levels[-1]
        for level in [first, last] if last is not first else [first]:
            figures.append((f"{level.mean_bits:.1f} bits", f"exposure of texts planted {times_phrase(level.repeats)}"))
    if report.control is not None:
        figures.append((f"{report.control.mean_bits:.1f} bits", "exposure of texts never planted"))
    for item in report.extraction[:1]:
        figures.append((f"{100 * item.rates[0].rate:.1f} %", "of training passages continued with training text"))
    for attack in report.membership[:1]:
        figures.append((f"{(attack.by_reference or attack.by_loss).auc:.3f}", "AUC of membership inference"))
    figures.append((f"{report.epochs:.1f}", "passes over the training text"))
    return figures


def _exactness(report: ExposureReport) -> str:
    """How the log-probabilities were computed."""
    if report.kind in EXACT_KINDS:
        return "Log-probabilities are exact."
    if report.kind == "bilm":
        return "Log-probabilities are the mean of both directions."
    return "Log-probabilities are pseudo-log-likelihoods: each token is masked once."


def _level_class(index: int) -> str:
    return f"arm{index % NUM_COLORS}"


def _level_chart(report: ExposureReport) -> str:
    """Mean exposure with its interval over the number of repeats, on a logarithmic axis."""
    if not report.levels:
        return ""
    x = [math.log2(level.repeats) for level in report.levels]
    ticks = [(value, f"{level.repeats:,}") for value, level in zip(x, report.levels, strict=True)]
    unseen = EXPECTED_UNSEEN_BITS if report.control is None else report.control.mean_bits
    lines = [
        ChartLine(name="lowest", css_class="train", points=_points(x, [level.interval[0] for level in report.levels])),
        ChartLine(name="highest", css_class="train", points=_points(x, [level.interval[1] for level in report.levels])),
        ChartLine(
            name="mean",
            css_class="held",
            points=_points(x, [level.mean_bits for level in report.levels]),
            markers=True,
        ),
        ChartLine(name="never planted", css_class="target", points=_points([x[0], x[-1]], [unseen, unseen])),
    ]
    return line_chart(lines, label="Exposure in bits over the number of repeats", x_label="planted", x_ticks=ticks)


def _checkpoint_chart(report: ExposureReport) -> str:
    """Mean exposure of each number of repeats over the steps of the checkpoints."""
    lines = []
    for index, level in enumerate(report.levels):
        points = [
            (float(checkpoint.step), own.mean_bits)
            for checkpoint in report.checkpoints
            for own in checkpoint.levels
            if own.repeats == level.repeats
        ]
        lines.append(ChartLine(name=f"{level.repeats:,}×", css_class=_level_class(index), points=points, markers=True))
    return line_chart(lines, label="Exposure in bits over training steps") if report.checkpoints else ""


def _roc_chart(item: Membership) -> str:
    """True over false positive rate, of the loss and with the reference model."""
    lines = [ChartLine(name="loss", css_class="held", points=item.by_loss.curve)]
    if item.by_reference is not None:
        lines.append(ChartLine(name="with reference", css_class="arm1", points=item.by_reference.curve))
    lines.append(ChartLine(name="chance", css_class="target", points=((0.0, 0.0), (1.0, 1.0))))
    ticks = [(value / 4, f"{value / 4:g}") for value in range(5)]
    return line_chart(lines, label="Receiver operating characteristic", x_label="false positive rate", x_ticks=ticks)


def _points(x: list[float], y: list[float]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(x, y, strict=True))
