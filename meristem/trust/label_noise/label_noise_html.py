"""Label noise report as one self-contained HTML file: no scripts, no external resources, all text escaped."""

from __future__ import annotations

from meristem.drawing.html_page import render_page
from meristem.trust.label_noise.label_noise_report import LabelNoiseReport
from meristem.trust.label_noise.label_noise_terminal import noise_summary

MAX_SUSPECTS, MAX_PAIRS, MAX_MATRIX_LABELS = 200, 50, 30
"""Rows shown; the JSON has all."""


def render_label_noise(report: LabelNoiseReport) -> str:
    """The complete HTML file."""
    return render_page(
        "label_noise_report.html",
        title=f"Label noise: {', '.join(report.files)}",
        date=report.date,
        stylesheets=("robustness.css",),
        report=report,
        summary=noise_summary(report),
        suspects=report.suspects[:MAX_SUSPECTS],
        pairs=sorted(report.duplicates, key=lambda pair: (not pair.contradicts, not pair.across_files))[:MAX_PAIRS],
        show_matrix=len(report.labels) <= MAX_MATRIX_LABELS,
    )
