"""Reward report as one HTML file: warnings, judges, metrics before and after, training curves and texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import yaml

from meristem.drawing.html_page import CHART_STYLESHEET, STYLESHEET, escape_content, escape_html, render_page
from meristem.drawing.reward_charts import best_of_section, reward_curves, reward_histograms
from meristem.drawing.reward_report import (
    BeforeAfterMetric,
    JudgeResult,
    OptionalFloat,
    RewardReport,
    ScoredText,
    TextComparison,
    finite_mean,
    format_number,
    format_p_value,
    summarize,
)
from meristem.drawing.thumbnails import DATA_URI_PREFIX

MAX_TEXT_CHARS = 1200
"""Characters of a text that are shown, at most."""
SEVERITY_LABELS = {"serious": "Serious", "mild": "Check this"}


def render_reward_report(report: RewardReport) -> str:
    """The complete HTML file."""
    parts = [
        *_head(report),
        *_warnings(report),
        *_judges_table(report.judges),
        *_metrics_table(report),
        *reward_histograms(report),
        *reward_curves(report),
        *best_of_section(report),
        *_samples_section(report.pairs),
        *_provenance_section(report),
    ]
    return render_page(
        f"{report.name}: rewards", parts, CHART_STYLESHEET, STYLESHEET.with_name("rewards.css"), date=report.date
    )


def _head(report: RewardReport) -> Iterator[str]:
    name, model = escape_content(report.name, 200), escape_content(report.model, 300)
    yield f'<h1>{name}</h1>\n<p class="soft">Reward run · {model}'
    yield f" · {escape_html(report.date)}</p>" if report.date else "</p>"
    yield f'<p class="verdict">{escape_html(summarize(report))}</p>'
    if report.stopped:
        yield f'<p class="stopped">Stopped early: {escape_content(report.stopped)}</p>'
    figures = [(_change(finite_mean(report.before), finite_mean(report.after)), "reward, before → after")]
    figures += [
        (f"{100 * item.won.rate:.0f} %", f"win rate, by {escape_content(item.name, 60)}") for item in report.judges[:1]
    ]
    if report.kl is not None:
        target = "" if report.kl_target is None else f", target {report.kl_target:.3g}"
        figures.append((format_number(report.kl), f"KL to the reference model{target}"))
    if report.prompts:
        figures.append((f"{report.prompts:,}", f"{escape_html(report.split)} prompts"))
    yield '<div class="figures">' + "".join(
        f"<div><b>{item}</b><span>{caption}</span></div>" for item, caption in figures
    )
    yield "</div>"
    if report.settings:
        caption = "".join(
            f"<div><dt>{escape_content(key, 60)}</dt><dd>{escape_content(value, 200)}</dd></div>"
            for key, value in report.settings.items()
        )
        yield f'<dl class="settings">{caption}</dl>'


def _change(before: OptionalFloat, after: OptionalFloat) -> str:
    return f"{format_number(before)} → {format_number(after)}"


def _warnings(report: RewardReport) -> Iterator[str]:
    yield "<h2>Warnings</h2>"
    if not report.warnings:
        yield (
            '<p class="calm">No warnings. Length, repetition, copying, sameness, endings and the KL to the reference '
            "model were compared before and after; none changed beyond the threshold of a warning.</p>"
        )
        return
    yield '<ul class="alarms">'
    for warning in report.warnings:
        yield (
            f'<li class="{escape_html(warning.severity)}">'
            f"<b>{SEVERITY_LABELS[warning.severity]}: {escape_content(warning.kind, 40)}</b> "
            f"{escape_content(warning.sentence)}</li>"
        )
    yield "</ul>"


# ------------------------------------------------------------ before and after


def _judges_table(judges: Sequence[JudgeResult]) -> Iterator[str]:
    if not judges:
        return
    yield '<h2>Which text is better, before or after?</h2>\n<div class="wide"><table class="judges"><thead><tr>'
    headers = '<th scope="col">judge</th><th scope="col" class="bar">won · tied · lost</th>'
    yield headers + '<th scope="col">win rate, 95 % interval</th>'
    yield '<th scope="col">p</th></tr></thead><tbody>'
    for judge in judges:
        win_rate, (low, high) = judge.won, judge.won.interval
        independence = "independent" if judge.independent else "trained for"
        counts = {"won": win_rate.wins, "tied": win_rate.ties, "lost": win_rate.losses}
        bar = "".join(
            f'<i class="{name}" style="width:{100 * count / win_rate.total:.2f}%" title="{count:,} {name}">'
            f"{count if count >= 0.06 * win_rate.total else ''}</i>"
            for name, count in counts.items()
            if count
        )
        counts_text = " · ".join(f"{count:,} {name}" for name, count in counts.items())
        yield (
            f'<tr><th scope="row">{escape_content(judge.name, 80)} <span class="soft">{independence}</span><br>'
            f'<span class="soft">{counts_text}</span></th><td class="bar"><span class="whole">{bar}</span></td>'
            f'<td class="value">{100 * win_rate.rate:.1f} %<br>'
            f'<span class="soft">{100 * low:.1f} – {100 * high:.1f} %</span></td>'
            f'<td class="chance">{escape_html(format_p_value(win_rate.p_value))}</td></tr>'
        )
    yield '</tbody></table></div>\n<p class="soft">A tie counts half. Wilson intervals; p of the sign test: '
    yield "the probability that two equal models differ as much.</p>"


def _metrics_table(report: RewardReport) -> Iterator[str]:
    if not report.numbers:
        return
    yield '<h2>Metrics</h2>\n<div class="wide"><table class="numbers"><thead><tr><th scope="col">metric</th>'
    yield '<th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr></thead><tbody>'
    for metric in report.numbers:
        meaning = f'<br><span class="soft">{escape_content(metric.meaning, 200)}</span>' if metric.meaning else ""
        before = f"{format_number(metric.before)}{_format_interval(metric.before_interval)}"
        after = f"{format_number(metric.after)}{_format_interval(metric.after_interval)}"
        yield (
            f'<tr><th scope="row">{escape_content(metric.name, 80)}{meaning}</th>'
            f'<td>{before}</td><td class="value">{after}</td>{_change_cell(metric)}</tr>'
        )
    yield "</tbody></table></div>"
    yield (
        '<p class="soft">Below each value: its 95 % bootstrap interval over the same prompts; below a change, that of '
        "the paired difference. “Better” and “worse” appear only where that interval excludes zero.</p>"
    )


def _format_interval(interval: tuple[float, float] | None) -> str:
    return (
        f'<br><span class="soft">{format_number(interval[0])} – {format_number(interval[1])}</span>' if interval else ""
    )


def _change_cell(metric: BeforeAfterMetric) -> str:
    """The change, labelled better or worse where it is significant and one direction is better."""
    if metric.before is None or metric.after is None or not math.isfinite(metric.before + metric.after):
        return "<td></td>"
    gain, label, css_class = metric.after - metric.before, "", ""
    if metric.better and metric.change_interval:
        low, high = metric.change_interval
        if low > 0 or high < 0:
            css_class = "good" if (low > 0) == (metric.better == "higher") else "bad"
            label = " better" if css_class == "good" else " worse"
    interval = _format_interval(metric.change_interval)
    return f'<td class="change {css_class}">{"+" if gain > 0 else ""}{format_number(gain)}{label}{interval}</td>'


# ------------------------------------------------------------ texts and provenance


def _samples_section(pairs: Sequence[TextComparison]) -> Iterator[str]:
    if not pairs:
        return
    yield "<h2>Before and after, side by side</h2>"
    for pair in pairs:
        prompt = f"{_prompt_image(pair)}{escape_content(pair.prompt, MAX_TEXT_CHARS)}"
        yield f'<article class="pair"><p class="prompt">{prompt}</p><div class="sides">'
        yield _text_column("before", pair.before, pair.preferred)
        yield _text_column("after", pair.after, pair.preferred) + "</div>"
        if pair.preferred == "tie":
            yield '<p class="soft">= The judge rates both equally.</p>'
        if pair.opinion:
            yield f'<p class="opinion">{escape_content(pair.opinion)}</p>'
        for reference in pair.references[:2]:
            yield f'<p class="place">reference: {escape_content(reference, 300)}</p>'
        yield f'<p class="place">{escape_content(pair.location, 200)}</p></article>' if pair.location else "</article>"


def _prompt_image(pair: TextComparison) -> str:
    """The thumbnail of an image prompt, before its name."""
    return (
        f'<img class="picture" alt="" src="{escape_html(pair.picture)}"> '
        if pair.picture.startswith(DATA_URI_PREFIX)
        else ""
    )


def _text_column(name: str, scored: ScoredText, preferred: str) -> str:
    is_preferred = preferred == name
    badge = '<b class="won">✓ preferred</b>' if is_preferred else ""
    scores: Mapping[str, OptionalFloat] = {"reward": scored.reward, **scored.parts}
    if scored.judge is not None:
        scores = {**scores, "judge": scored.judge}
    rows = "".join(
        f"<span>{escape_content(key, 40)} <b>{format_number(value)}</b></span>" for key, value in scores.items()
    )
    text = escape_content(scored.text, MAX_TEXT_CHARS) if scored.text.strip() else '<span class="soft">(empty)</span>'
    truncated_note = "" if scored.ended else ' <span class="soft">(truncated)</span>'
    return (
        f'<section class="{"side winner" if is_preferred else "side"}"><h3>{name} {badge}</h3>'
        f"<p>{text}{truncated_note}</p>"
        f'<p class="scores">{rows}</p></section>'
    )


def _provenance_section(report: RewardReport) -> Iterator[str]:
    yield "<h2>Data and method</h2>"
    yield (
        f"<p>Both models generated for the same {report.prompts:,} {escape_html(report.split)} prompts, which training "
        "never used, with the same sampling settings; rewards and judges scored both in the same way.</p>"
    )
    if report.sources:
        yield "<ul>" + "".join(f"<li>{escape_content(line)}</li>" for line in report.sources) + "</ul>"
    if report.commands:
        yield f'<h2>Use it</h2>\n<div class="wide"><pre>{escape_html(chr(10).join(report.commands))}</pre></div>'
    if report.recipe:
        text = escape_html(yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True))
        yield "<h2>Recipe</h2>\n<details><summary>All settings</summary>"
        yield f'<div class="wide"><pre>{text}</pre></div></details>'
