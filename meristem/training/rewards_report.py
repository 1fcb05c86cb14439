"""What a finished reward run leaves behind: report.html, report.json, and its part of the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint import disk
from meristem.checkpoint.run import Run
from meristem.corpus.pictures import pixels
from meristem.drawing.curves import read_metrics
from meristem.drawing.page import written_now
from meristem.drawing.rewards import (
    Attempted,
    BestOf,
    Judge,
    Moment,
    Number,
    Pair,
    RewardReport,
    Side,
    as_json,
    moment,
    number,
    verdict,
)
from meristem.drawing.rewards_page import page
from meristem.drawing.thumbnails import SIDE, png_data_uri
from meristem.errors import MeristemError
from meristem.metrics import drift
from meristem.metrics.bootstrap import intervals
from meristem.metrics.drift import MEANINGS, Measured, Texts, measured
from meristem.metrics.hacking import warnings
from meristem.metrics.paired import FEWEST, paired_difference
from meristem.metrics.variety import distinct
from meristem.metrics.winning import winning
from meristem.recipe import Recipe

BEST_OF = (1, 2, 4, 8)
PAIRS = 16
TOLD = ("length", "unended", "repeated4", "copied5", "alike", "duplicates")
"""Of what drifts, the numbers that stand in the table."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Wrote:
    """What one model wrote: all texts of each prompt, and what judges say of the first of each."""

    tried: Any
    judged: Mapping[str, Floats]

    @cached_property
    def first(self) -> list[int]:
        """The first text of each prompt."""
        return list(range(0, len(self.tried.attempts), BEST_OF[-1]))

    @cached_property
    def texts(self) -> Texts:
        """The first texts, for what is measured on words."""
        some = [self.tried.attempts[at] for at in self.first]
        return Texts(
            prompts=[one.shown for one in some],
            texts=[one.text for one in some],
            references=[one.references for one in some],
            ended=[one.ended for one in some],
        )

    def best(self, count: int) -> float:
        """The mean over prompts of the best reward among so many texts."""
        groups = self.tried.reward.reshape(-1, BEST_OF[-1])[:, :count]
        return float(groups.max(1).mean())


def wrote(tried: Any, judge: Any | None) -> Wrote:
    """Texts with the opinion of judges that nothing was learned from."""
    made = Wrote(tried, {})
    if judge is None:
        return made
    return Wrote(tried, dict(judge.judge([tried.attempts[at] for at in made.first]).parts))


def report_of(
    run: Run,
    recipe: Recipe,
    before: Wrote,
    after: Wrote,
    *,
    model: str,
    split: str,
    sources: Sequence[str],
    commands: Sequence[str],
) -> RewardReport:
    """Everything known about a run that has ended, in one place."""
    lines = read_metrics(run.metrics_path)
    drifted = measured(before.texts, after.texts)
    at, leash = before.first, recipe.policy.kl
    kl, target = float(after.tried.kl.mean()), leash.target if leash.coefficient else None
    rewards = before.tried.reward[at], after.tried.reward[at]
    judge = next(iter(after.judged), None)
    judged = (before.judged[judge], after.judged[judge]) if judge is not None else None
    return RewardReport(
        name=run.path.name,
        date=written_now(),
        model=model,
        split=split,
        prompts=len(at),
        settings=_settings(recipe),
        stopped=next((str(line.get("why", "")) for line in reversed(lines) if line["kind"] == "stopped"), ""),
        kl=kl,
        kl_target=target,
        train=_moments(lines, "train"),
        validation=_moments(lines, "evaluation"),
        before=tuple(map(float, rewards[0])),
        after=tuple(map(float, rewards[1])),
        judges=_judges(before, after),
        best_of=tuple(BestOf(count=n, start=before.best(n), trained=after.best(n)) for n in BEST_OF),
        numbers=_numbers(before, after, drifted),
        pairs=tuple(_pair(before, after, place, judge) for place in range(min(PAIRS, len(at)))),
        warnings=tuple(
            warnings(
                drifted,
                float(rewards[0].mean()),
                float(rewards[1].mean()),
                None if judged is None else float(judged[0].mean()),
                None if judged is None else float(judged[1].mean()),
                kl,
                target,
                margin=0.0 if judged is None else _margin(*judged),
                reward_margin=_margin(*rewards),
            )
        ),
        sources=tuple(sources),
        recipe=recipe.plain(),
        commands=tuple(commands),
    )


def write(report: RewardReport, folder: Path) -> None:
    """The page, and the same facts for programs."""
    disk.replace(folder / "report.html", [page(report).encode("utf-8", "replace")])
    disk.replace(folder / "report.json", [as_json(report).encode()])


def card_lines(report: RewardReport) -> list[str]:
    """The rewards in a model card: what changed, who prefers it, what to be wary of."""
    lines = ["## Rewards", "", verdict(report), "", "| measure | before | after |", "| --- | --- | --- |"]
    lines += [f"| {one.name} | {number(one.before)} | {number(one.after)} |" for one in report.numbers]
    if report.warnings:
        lines += ["", "Warnings:", "", *(f"- {one.sentence}" for one in report.warnings)]
    return [*lines, "", "`report.html` has curves and texts before and after.", ""]


def _settings(recipe: Recipe) -> dict[str, str]:
    policy, leash = recipe.policy, recipe.policy.kl
    held = f"{leash.target:g} nats per text, from β = {leash.coefficient:g}" if leash.coefficient else "off"
    return {
        "rewards": ", ".join(f"{one.name} × {one.weight:g}" for one in recipe.rewards),
        "texts for a prompt": f"{policy.count}, of at most {policy.max_tokens} tokens",
        "compared with": policy.baseline,
        "leash": held,
        "updates on a collection": str(policy.updates),
    }


def _moments(lines: Sequence[Mapping[str, Any]], kind: str) -> tuple[Moment, ...]:
    return tuple(moment(line["step"], line) for line in lines if line["kind"] == kind)


def _judges(before: Wrote, after: Wrote) -> tuple[Judge, ...]:
    """Those that nothing was learned from first, then the rewards themselves."""
    at = before.first
    outside = [
        Judge(name=name, won=winning(before.judged[name].tolist(), values.tolist()))
        for name, values in after.judged.items()
    ]
    own = [
        Judge(name=name, won=winning(before.tried.parts[name][at].tolist(), values[at].tolist()), independent=False)
        for name, values in after.tried.parts.items()
    ]
    return (*outside, *own)


def _numbers(before: Wrote, after: Wrote, drifted: Measured) -> tuple[Number, ...]:
    at = before.first
    made = [_mean("reward", before.tried.reward[at], after.tried.reward[at], "higher")]
    made += [_mean(f"reward: {name}", before.tried.parts[name][at], values[at], "higher")
             for name, values in after.tried.parts.items()]  # fmt: skip
    made += [_mean(f"judge: {name}", before.judged[name], values, "higher") for name, values in after.judged.items()]
    pairs = [distinct(one.texts.texts)["distinct2"] for one in (before, after)]
    made.append(Number(name="distinct-2", before=pairs[0], after=pairs[1], meaning=MEANINGS["distinct2"]))
    made.append(_mean("surprise per token", before.tried.entropy[at], after.tried.entropy[at], ""))
    sure = drift.intervals(before.texts, after.texts)
    for name in TOLD:
        (old, new), (low, high) = drifted[name], sure.get(name, (None, None))
        made.append(Number(name=name, before=old, after=new, before_interval=low, after_interval=high,
                           meaning=MEANINGS[name]))  # fmt: skip
    return tuple(made)


def _mean(name: str, before: Floats, after: Floats, better: Any) -> Number:
    old, new, change = _interval(before), _interval(after), paired_difference(before.tolist(), after.tolist())
    enough = change.pairs >= FEWEST
    return Number(name=name, before=float(before.mean()), after=float(after.mean()), before_interval=old,
                  after_interval=new, better=better,
                  change_interval=(change.low, change.high) if enough else None)  # fmt: skip


def _interval(values: Floats) -> tuple[float, float]:
    return intervals(lambda at: {"mean": float(values[at].mean())}, len(values))["mean"]


def _margin(before: Floats, after: Floats) -> float:
    """What a gain must exceed to be more than chance; nothing exceeds it where there are too few prompts."""
    change = paired_difference(before.tolist(), after.tolist())
    return max(change.mean - change.low, change.high - change.mean) if change.pairs >= FEWEST else float("inf")


def _pair(before: Wrote, after: Wrote, place: int, judge: str | None) -> Pair:
    sides = [_attempted(one, place, judge) for one in (before, after)]
    preferred: Side = ""
    if judge is not None:
        old, new = before.judged[judge][place], after.judged[judge][place]
        preferred = "after" if new > old else "before" if new < old else "tie"
    attempt = before.tried.attempts[before.first[place]]
    return Pair(prompt=attempt.shown, before=sides[0], after=sides[1], preferred=preferred,
                references=attempt.references, place=attempt.place, picture=_thumbnail(attempt.picture))  # fmt: skip


def _thumbnail(name: str) -> str:
    """A picture prompt as a data URI; none where the prompt is a text, or the file is gone by now."""
    try:
        return png_data_uri(pixels(name, SIDE)) if name else ""
    except MeristemError:
        return ""


def _attempted(one: Wrote, place: int, judge: str | None) -> Attempted:
    at = one.first[place]
    attempt = one.tried.attempts[at]
    return Attempted(
        text=attempt.text,
        reward=float(one.tried.reward[at]),
        parts={name: float(values[at]) for name, values in one.tried.parts.items()},
        judge=float(one.judged[judge][place]) if judge is not None else None,
        ended=attempt.ended,
    )
