"""Ramp planning: the steps in which batch and rows grow, and a budget converted to steps that are not all full."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from meristem.config.errors import RecipeError
from meristem.dataset.feed import Feed, sample_tokens
from meristem.dataset.step_ramp import NO_RAMP, StepRamp, StepWork
from meristem.dataset.views.windows import WindowsView
from meristem.training.budget import StepFlops
from meristem.training.settings import TrainSettings

CONVERGED_STEPS = 1.0
"""Planning ends when a repetition changes the total by less: the ramp is a whole number of steps."""
MAX_REPETITIONS = 100
CountPartFlops = Callable[[str, int], StepFlops]
"""Source and number of parts → FLOPs of a batch whose rows are cut into so many parts."""


def flops_key(source: str, parts: int) -> str:
    """The name under which the FLOPs per token of rows in so many parts are saved."""
    return source if parts == 1 else f"{source}/{parts}"


def ramp_lengths(settings: TrainSettings, total: float) -> tuple[int, int]:
    """Steps of the batch ramp and of the length ramp in a run of `total` steps."""
    batch_steps, length_steps = (
        round(setting * total) if setting < 1 else int(setting)
        for setting in (settings.batch_ramp, settings.length_ramp)
    )
    return batch_steps, length_steps


def make_ramp(settings: TrainSettings, batch_steps: float, length_steps: float) -> StepRamp:
    """The ramp of a source that has so many steps while it lasts."""
    if not settings.batch_ramp and not settings.length_ramp:
        return NO_RAMP
    return StepRamp(
        batch_steps=round(batch_steps),
        batch_start=settings.batch_ramp_start,
        length_steps=round(length_steps),
        length_parts=settings.length_ramp_parts if settings.length_ramp else 1,
    )


def check_ramp(settings: TrainSettings, feeds: Mapping[str, Feed]) -> None:
    """Raise if batches cannot change their size, or rows cannot be cut."""
    for name, feed in feeds.items():
        if (settings.batch_ramp or settings.length_ramp) and not feed.view.shuffled:
            setting = "batch_ramp" if settings.batch_ramp else "length_ramp"
            raise RecipeError(
                f"train.{setting}: a row of {name} continues that of the step before, so rows cannot change; "
                "set dataset.contiguous_batches=false, or leave it out"
            )
        if settings.length_ramp and not isinstance(feed.view, WindowsView):
            raise RecipeError(
                f"train.length_ramp: only rows of packed text can be cut, and those of {name} are none "
                "(sentence pairs, text pairs, images or groups of texts); leave it out"
            )


def part_work(
    settings: TrainSettings,
    feeds: Mapping[str, Feed],
    shares: Mapping[str, float],
    count_flops: CountPartFlops,
    kind: str,
) -> dict[int, float]:
    """Number of parts → work of a row in so many parts relative to the whole row, in what a budget of this kind counts:
    tokens, or FLOPs for FLOPs and minutes. Steps and epochs count rows, whatever they are cut into."""

    def work(name: str, parts: int) -> float:
        tokens = feeds[name].batch_size * sample_tokens(feeds[name].view, feeds[name].objective, parts).mean
        return shares[name] * tokens * (1.0 if kind == "tokens" else count_flops(name, parts).per_token)

    ramp = make_ramp(settings, 0, settings.length_ramp_parts if settings.length_ramp else 0)
    if len(ramp.all_parts) == 1 or kind in ("steps", "epochs"):
        return dict.fromkeys(ramp.all_parts, 1.0)
    totals = {parts: sum(work(name, parts) for name in feeds) for parts in ramp.all_parts}
    return {parts: total / totals[1] for parts, total in totals.items()}


def plan_ramp(settings: TrainSettings, full_steps: int, works: Mapping[int, float]) -> tuple[int, StepRamp]:
    """Steps that do the work of `full_steps` full ones, and their ramp; a budget in steps is as many steps."""
    if settings.budget[0] == "steps":
        return full_steps, make_ramp(settings, *ramp_lengths(settings, full_steps))
    total = float(full_steps)
    for _ in range(MAX_REPETITIONS):
        ramp = make_ramp(settings, *ramp_lengths(settings, total))
        previous, total = total, StepWork(ramp, works).steps(full_steps)
        if abs(total - previous) < CONVERGED_STEPS:
            break
    return max(1, round(total)), ramp


def with_ramp(
    feeds: Mapping[str, Feed], settings: TrainSettings, shares: Mapping[str, float], lengths: tuple[int, int]
) -> dict[str, Feed]:
    """The feeds with their ramps: a source of a mix has its share of the ramp's steps."""
    if not any(lengths):
        return dict(feeds)
    batch_steps, length_steps = lengths
    return {
        name: replace(feed, ramp=make_ramp(settings, shares[name] * batch_steps, shares[name] * length_steps))
        for name, feed in feeds.items()
    }
