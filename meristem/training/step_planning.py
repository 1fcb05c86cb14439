"""Step planning: converts a budget (epochs, tokens, FLOPs, minutes) into optimizer steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import PretrainRecipe
from meristem.dataset.feed import Feed
from meristem.dataset.mixture import SourceMixture
from meristem.dataset.phases import PhaseSchedule, phase_starts
from meristem.dataset.step_ramp import StepRamp, StepWork
from meristem.inputs.batch import Batch
from meristem.interfaces.objective import Objective
from meristem.training.budget import TRIAL_SECONDS, StepCost, mean_cost, measure_step_cost, planned_steps
from meristem.training.ramp_planning import (
    CountPartFlops,
    check_ramp,
    make_ramp,
    part_work,
    plan_ramp,
    with_ramp,
)
from meristem.training.run_result import RunContext


def build_mixture(context: RunContext) -> SourceMixture | PhaseSchedule:
    """What assigns every step to a source: the phases that were planned, or a mixture."""
    recipe = context.recipe
    if isinstance(recipe, PretrainRecipe) and recipe.phases:
        return PhaseSchedule(recipe.source_weights, context.state.phase_starts)
    return SourceMixture(recipe.source_weights, recipe.train.seed)


def _plan_phases(context: RunContext, total: int) -> None:
    """Set the first step of each phase; with a larger budget, of those that have not begun."""
    mixture, state = build_mixture(context), context.state
    if not isinstance(mixture, PhaseSchedule):
        return
    if not state.phase_starts:
        state.phase_starts = phase_starts(list(mixture.shares.values()), total)
        if len(set(state.phase_starts)) < len(state.phase_starts):
            raise RecipeError(f"phases: {len(state.phase_starts)} phases need as many steps, and the budget is {total}")
    else:
        mixture.replan(state.step, total)
        state.phase_starts = mixture.starts
    ramp_end = max(state.batch_ramp_steps, state.length_ramp_steps)
    if len(state.phase_starts) > 1 and ramp_end > state.phase_starts[1]:
        setting = "batch_ramp" if state.batch_ramp_steps == ramp_end else "length_ramp"
        raise RecipeError(
            f"train.{setting}: it lasts {ramp_end:,} steps, and must end within the first phase "
            f"({state.phase_starts[1]:,} steps)"
        )


def _ramp_shares(context: RunContext) -> dict[str, float]:
    """The share of the ramp's steps that each source has: with phases they are all the first one's."""
    shares = build_mixture(context).shares
    if isinstance(context.recipe, PretrainRecipe) and context.recipe.phases:
        return {name: float(number == 0) for number, name in enumerate(shares)}
    return shares


def step_batches(feed: Feed, source_step: int) -> list[Batch]:
    """All micro-batches of one step."""
    return [feed.batch(source_step, micro_step) for micro_step in range(feed.micro_steps_of(source_step))]


def part_batches(feed: Feed, parts: int) -> list[Batch]:
    """All micro-batches of a full step whose rows are cut into so many parts."""
    return step_batches(replace(feed, ramp=StepRamp(length_steps=1, length_parts=parts)), 0)


def steps_per_epoch(feed: Feed) -> float:
    """Steps in one pass over a source."""
    return len(feed.view) / feed.batch_size


def plan_steps(
    context: RunContext, feeds: Mapping[str, Feed], count_flops: CountPartFlops, device: torch.device
) -> None:
    """Set `state.total` from the budget, once; again only if the budget has grown, or in the loop (`replanning.py`).

    The feeds are without ramps. In a mix, sources count by their share of the steps, and an epoch is one pass over the
    first source.
    """
    settings, state = context.recipe.train, context.state
    kind, value = settings.budget
    budget = f"{value:g} {kind}"
    if state.budget == budget:
        if kind == "steps" and state.total != value:
            raise MeristemError(f"state.json: total is {state.total} in a run of {budget}: the file was changed")
        return

    def measure_cost() -> StepCost:
        context.logger.log("Measuring the speed of this machine …")
        return _mean_cost(context, feeds, device)

    check_ramp(settings, feeds)
    shares = build_mixture(context).shares
    tokens_per_step = sum(
        shares[name] * _tokens_per_step(context, name, feed, count_flops) for name, feed in feeds.items()
    )
    epoch_steps = steps_per_epoch(next(iter(feeds.values())))
    total = planned_steps(
        settings, tokens_per_step=tokens_per_step, steps_per_epoch=epoch_steps, measure_cost=measure_cost
    )
    total = _plan_ramp(context, feeds, count_flops, total)
    _plan_phases(context, total)
    if total < state.step:
        reason = f"but the run has already taken {state.step}; budgets may only grow"
        raise MeristemError(f"a budget of {budget} is {total} steps, {reason}")
    state.total, state.planned_total, state.replans = total, total, 0
    state.budget, state.threads = budget, torch.get_num_threads()
    state.precision, state.processes = context.precision, context.training_data.distributed.world_size


def _plan_ramp(context: RunContext, feeds: Mapping[str, Feed], count_flops: CountPartFlops, full_steps: int) -> int:
    """The steps that do the work of `full_steps` full ones, of which the first ones may be smaller; sets how many.

    Every rank has measured its own speed: that of rank 0 counts.
    """
    settings, state = context.recipe.train, context.state
    broadcast, kind = context.training_data.distributed.broadcast, settings.budget[0]
    works, total = part_work(settings, feeds, _ramp_shares(context), count_flops, kind), full_steps
    if not state.step:
        total, ramp = plan_ramp(settings, full_steps, works)
        state.batch_ramp_steps, state.length_ramp_steps = map(broadcast, (ramp.batch_steps, ramp.length_steps))
    elif kind != "steps":  # the first steps were what they were
        total = round(StepWork(_ramp(context), works).steps(full_steps))
    return broadcast(total)


def _ramp(context: RunContext) -> StepRamp:
    """The ramp of all sources together."""
    return make_ramp(context.recipe.train, context.state.batch_ramp_steps, context.state.length_ramp_steps)


def ramped_feeds(context: RunContext, feeds: Mapping[str, Feed]) -> dict[str, Feed]:
    """The feeds with the ramps that were planned."""
    lengths = context.state.batch_ramp_steps, context.state.length_ramp_steps
    return with_ramp(feeds, context.recipe.train, _ramp_shares(context), lengths)


def step_work(context: RunContext, feeds: Mapping[str, Feed], count_flops: CountPartFlops) -> StepWork:
    """What the steps of a budget in minutes cost relative to a full one."""
    return StepWork(
        _ramp(context), part_work(context.recipe.train, feeds, _ramp_shares(context), count_flops, "minutes")
    )


def planned_tokens(context: RunContext, feeds: Mapping[str, Feed]) -> float:
    """Tokens read in all steps of the first plan."""
    shares, ramp = build_mixture(context).shares, _ramp(context)
    full_steps = StepWork(ramp, dict.fromkeys(ramp.all_parts, 1.0))
    return full_steps.until(context.state.planned_total or context.state.total) * sum(
        shares[name] * context.training_data.tokens_per_step(feed) for name, feed in feeds.items()
    )


def _mean_cost(context: RunContext, feeds: Mapping[str, Feed], device: torch.device) -> StepCost:
    """Mean cost of a step over the sources of a mix."""
    costs = {
        name: measure_step_cost(
            context.learner,
            name,
            partial(step_batches, feed),
            context.recipe.train,
            device,
            context.precision,
            seconds=TRIAL_SECONDS / len(feeds),
        )
        for name, feed in feeds.items()
    }
    return mean_cost(costs, build_mixture(context).shares)


def _tokens_per_step(context: RunContext, source: str, feed: Feed, count_flops: CountPartFlops) -> float:
    """Mean tokens of a step; for objectives with rollouts, the tokens of the first step."""
    if type(feed.objective).explore is Objective.explore:
        return context.training_data.tokens_per_step(feed)
    return float(count_flops(source, 1).tokens * context.training_data.distributed.world_size)


def refuse_changed_batches(context: RunContext, feeds: Mapping[str, Feed]) -> None:
    """Raise if steps would have a different number of samples than before: it would silently become a different run."""
    state, mixture = context.state, build_mixture(context)
    steps_by_source = Counter(mixture(step)[0] for step in range(state.step))
    expected = sum(feeds[name].sample_range(count).start for name, count in steps_by_source.items() if name in feeds)
    if state.samples != expected:
        raise MeristemError(
            f"{context.run.path} has read {state.samples:,} samples in {state.step:,} steps, and would have read "
            f"{expected:,} now: another version of meristem counted train.batch_tokens differently, or the shards have "
            "changed. Resume it with the version that started it, or start over with --fresh"
        )
