"""The report of a reward run as one HTML file: what to beware of, what changed, who says so, and what was written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import yaml

from meristem.drawing.page import CHARTS, STYLE, escaped, framed, own
from meristem.drawing.rewards import Attempted, Judge, Number, Pair, RewardReport, Value, chance, mean, number, verdict
from meristem.drawing.rewards_curves import best_of, curves, distributions
from meristem.drawing.thumbnails import PREFIX

LONGEST = 1200
"""Characters of a text that are shown."""
SERIOUS = {"serious": "Serious", "mild": "Look at this"}


def page(report: RewardReport) -> str:
    """The whole file."""
    parts = [
        *_head(report),
        *_warnings(report),
        *_judges(report.judges),
        *_numbers(report),
        *distributions(report),
        *curves(report),
        *best_of(report),
        *_pairs(report.pairs),
        *_making(report),
    ]
    return framed(f"{report.name}: rewards", parts, CHARTS, STYLE.with_name("rewards.css"), date=report.date)


def _head(report: RewardReport) -> Iterator[str]:
    yield f'<h1>{own(report.name, 200)}</h1>\n<p class="soft">Reward run · {own(report.model, 300)}'
    yield f" · {escaped(report.date)}</p>" if report.date else "</p>"
    yield f'<p class="verdict">{escaped(verdict(report))}</p>'
    if report.stopped:
        yield f'<p class="stopped">Stopped early: {own(report.stopped)}</p>'
    figures = [(_change(mean(report.before), mean(report.after)), "reward, before → after")]
    figures += [(f"{100 * one.won.rate:.0f} %", f"won, by {own(one.name, 60)}") for one in report.judges[:1]]
    if report.kl is not None:
        target = "" if report.kl_target is None else f", target {report.kl_target:.3g}"
        figures.append((number(report.kl), f"KL from the start{target}"))
    if report.prompts:
        figures.append((f"{report.prompts:,}", f"{escaped(report.split)} prompts"))
    yield '<div class="figures">' + "".join(f"<div><b>{one}</b><span>{told}</span></div>" for one, told in figures)
    yield "</div>"
    if report.settings:
        told = "".join(
            f"<div><dt>{own(key, 60)}</dt><dd>{own(value, 200)}</dd></div>" for key, value in report.settings.items()
        )
        yield f'<dl class="settings">{told}</dl>'


def _change(before: Value, after: Value) -> str:
    return f"{number(before)} → {number(after)}"


def _warnings(report: RewardReport) -> Iterator[str]:
    yield "<h2>Warnings</h2>"
    if not report.warnings:
        yield (
            '<p class="calm">Nothing to warn of. Length, repetition, copying, sameness, endings and the distance from '
            "the start were compared before and after; none moved beyond the bound at which it would be named here.</p>"
        )
        return
    yield '<ul class="alarms">'
    for one in report.warnings:
        yield (
            f'<li class="{escaped(one.severity)}"><b>{SERIOUS[one.severity]}: {own(one.kind, 40)}</b> '
            f"{own(one.sentence)}</li>"
        )
    yield "</ul>"


# ------------------------------------------------------------ before and after


def _judges(judges: Sequence[Judge]) -> Iterator[str]:
    if not judges:
        return
    yield '<h2>Which text is better, before or after?</h2>\n<div class="wide"><table class="judges"><thead><tr>'
    heads = '<th scope="col">judge</th><th scope="col" class="bar">won · tied · lost</th>'
    yield heads + '<th scope="col">win rate, 95 % interval</th>'
    yield '<th scope="col">p</th></tr></thead><tbody>'
    for one in judges:
        won, (low, high) = one.won, one.won.interval
        kind = "independent" if one.independent else "was trained for"
        counts = {"won": won.wins, "tied": won.ties, "lost": won.losses}
        bar = "".join(
            f'<i class="{name}" style="width:{100 * count / won.compared:.2f}%" title="{count:,} {name}">'
            f"{count if count >= 0.06 * won.compared else ''}</i>"
            for name, count in counts.items()
            if count
        )
        told = " · ".join(f"{count:,} {name}" for name, count in counts.items())
        yield (
            f'<tr><th scope="row">{own(one.name, 80)} <span class="soft">{kind}</span><br>'
            f'<span class="soft">{told}</span></th><td class="bar"><span class="whole">{bar}</span></td>'
            f'<td class="value">{100 * won.rate:.1f} %<br>'
            f'<span class="soft">{100 * low:.1f} – {100 * high:.1f} %</span></td>'
            f'<td class="chance">{escaped(chance(won.chance))}</td></tr>'
        )
    yield '</tbody></table></div>\n<p class="soft">A tie counts half. Intervals by Wilson; p by the sign test: '
    yield "how often two equal models would differ as much.</p>"


def _numbers(report: RewardReport) -> Iterator[str]:
    if not report.numbers:
        return
    yield '<h2>Numbers</h2>\n<div class="wide"><table class="numbers"><thead><tr><th scope="col">measure</th>'
    yield '<th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr></thead><tbody>'
    for one in report.numbers:
        meaning = f'<br><span class="soft">{own(one.meaning, 200)}</span>' if one.meaning else ""
        yield (
            f'<tr><th scope="row">{own(one.name, 80)}{meaning}</th>'
            f"<td>{number(one.before)}{_between(one.before_interval)}</td>"
            f'<td class="value">{number(one.after)}{_between(one.after_interval)}</td>{_moved(one)}</tr>'
        )
    yield "</tbody></table></div>"
    yield (
        '<p class="soft">Below each number: the middle 95 % of it over sets drawn with repeats from the same prompts '
        "(bootstrap); below a change, that of the difference over the same prompts. “Better” and “worse” are said only "
        "where that leaves zero out.</p>"
    )


def _between(interval: tuple[float, float] | None) -> str:
    return f'<br><span class="soft">{number(interval[0])} – {number(interval[1])}</span>' if interval else ""


def _moved(one: Number) -> str:
    """The change, in words where it is sure and one direction is good."""
    if one.before is None or one.after is None or not math.isfinite(one.before + one.after):
        return "<td></td>"
    gain, told, kind = one.after - one.before, "", ""
    if one.better and one.change_interval:
        low, high = one.change_interval
        if low > 0 or high < 0:
            kind = "good" if (low > 0) == (one.better == "higher") else "bad"
            told = " better" if kind == "good" else " worse"
    between = _between(one.change_interval)
    return f'<td class="change {kind}">{"+" if gain > 0 else ""}{number(gain)}{told}{between}</td>'


# ------------------------------------------------------------ what was written, and where it comes from


def _pairs(pairs: Sequence[Pair]) -> Iterator[str]:
    if not pairs:
        return
    yield "<h2>Before and after, side by side</h2>"
    for one in pairs:
        prompt = f"{_picture(one)}{own(one.prompt, LONGEST)}"
        yield f'<article class="pair"><p class="prompt">{prompt}</p><div class="sides">'
        yield _side("before", one.before, one.preferred)
        yield _side("after", one.after, one.preferred) + "</div>"
        if one.preferred == "tie":
            yield '<p class="soft">= The judge finds both equal.</p>'
        if one.opinion:
            yield f'<p class="opinion">{own(one.opinion)}</p>'
        for reference in one.references[:2]:
            yield f'<p class="place">reference: {own(reference, 300)}</p>'
        yield f'<p class="place">{own(one.place, 200)}</p></article>' if one.place else "</article>"


def _picture(one: Pair) -> str:
    """The prompt's picture before its name, where it is one."""
    return f'<img class="picture" alt="" src="{escaped(one.picture)}"> ' if one.picture.startswith(PREFIX) else ""


def _side(name: str, one: Attempted, preferred: str) -> str:
    wins = preferred == name
    told = '<b class="won">✓ preferred</b>' if wins else ""
    scores: Mapping[str, Value] = {"reward": one.reward, **one.parts}
    if one.judge is not None:
        scores = {**scores, "judge": one.judge}
    rows = "".join(f"<span>{own(key, 40)} <b>{number(value)}</b></span>" for key, value in scores.items())
    text = own(one.text, LONGEST) if one.text.strip() else '<span class="soft">(nothing)</span>'
    cut = "" if one.ended else ' <span class="soft">(cut at the limit)</span>'
    return (
        f'<section class="{"side winner" if wins else "side"}"><h3>{name} {told}</h3><p>{text}{cut}</p>'
        f'<p class="scores">{rows}</p></section>'
    )


def _making(report: RewardReport) -> Iterator[str]:
    yield "<h2>Where these numbers come from</h2>"
    yield (
        f"<p>Both models wrote for the same {report.prompts:,} {escaped(report.split)} prompts, which training never "
        "saw, with the same settings of sampling; rewards and judges read both in the same way.</p>"
    )
    if report.sources:
        yield "<ul>" + "".join(f"<li>{own(line)}</li>" for line in report.sources) + "</ul>"
    if report.commands:
        yield f'<h2>Use it</h2>\n<div class="wide"><pre>{escaped(chr(10).join(report.commands))}</pre></div>'
    if report.recipe:
        text = escaped(yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True))
        yield "<h2>Recipe</h2>\n<details><summary>Every setting</summary>"
        yield f'<div class="wide"><pre>{text}</pre></div></details>'
