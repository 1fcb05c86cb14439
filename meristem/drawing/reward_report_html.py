"""Reward report as one HTML file: warnings, judges, metrics before and after, training curves and texts."""

from __future__ import annotations

from meristem.drawing.html_page import render_page
from meristem.drawing.reward_charts import best_of_comparison, reward_curves, reward_histograms
from meristem.drawing.reward_report import RewardReport, finite_mean, format_number, format_p_value, summarize
from meristem.drawing.thumbnails import DATA_URI_PREFIX

MAX_TEXT_CHARS = 1200
"""Characters of a text that are shown, at most."""
SEVERITY_LABELS = {"serious": "Serious", "mild": "Check this"}


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
