"""Step planning: converts a budget (epochs, tokens, FLOPs, minutes) into optimizer steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import torch

from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.dataset.feed import Feed
from meristem.dataset.mixture import SourceMixture
from meristem.inputs.batch import Batch
from meristem.interfaces.objective import Objective
from meristem.training.budget import TRIAL_SECONDS, StepCost, StepFlops, mean_cost, measure_step_cost, planned_steps
from meristem.training.run_result import RunContext


def build_mixture(recipe: Recipe) -> SourceMixture:
    """The mixture that assigns every step to a source."""
    return SourceMixture(recipe.source_weights, recipe.train.seed)


def step_batches(feed: Feed, source_step: int) -> list[Batch]:
    """All micro-batches of one step."""
    return [feed.batch(source_step, micro_step) for micro_step in range(feed.micro_steps)]


def steps_per_epoch(feed: Feed) -> float:
    """Steps in one pass over a source."""
    return len(feed.view) / feed.batch_size


def plan_steps(
    context: RunContext, feeds: Mapping[str, Feed], step_flops: Callable[[str], StepFlops], device: torch.device
) -> None:
    """Set `state.total` from the budget, once; again only if the budget has grown, or in the loop (`replanning.py`).

    In a mix, sources count by their share of the steps, and an epoch is one pass over the first source.
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

    shares = build_mixture(context.recipe).shares
    tokens_per_step = sum(
        shares[name] * _tokens_per_step(context, name, feed, step_flops) for name, feed in feeds.items()
    )
    epoch_steps = steps_per_epoch(next(iter(feeds.values())))
    total = planned_steps(
        settings, tokens_per_step=tokens_per_step, steps_per_epoch=epoch_steps, measure_cost=measure_cost
    )
    total = context.training_data.distributed.broadcast(total)  # every rank has measured its own speed
    if total < state.step:
        reason = f"but the run has already taken {state.step}; budgets may only grow"
        raise MeristemError(f"a budget of {budget} is {total} steps, {reason}")
    state.total, state.planned_total, state.replans = total, total, 0
    state.budget, state.threads = budget, torch.get_num_threads()
    state.precision, state.processes = context.precision, context.training_data.distributed.world_size


def planned_tokens(context: RunContext, feeds: Mapping[str, Feed]) -> float:
    """Tokens read in all steps of the first plan."""
    shares = build_mixture(context.recipe).shares
    return (context.state.planned_total or context.state.total) * sum(
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
    return mean_cost(costs, build_mixture(context.recipe).shares)


def _tokens_per_step(context: RunContext, source: str, feed: Feed, step_flops: Callable[[str], StepFlops]) -> float:
    """Mean tokens of a step; for objectives with rollouts, the tokens of the first step."""
    if type(feed.objective).explore is Objective.explore:
        return context.training_data.tokens_per_step(feed)
    return float(step_flops(source).tokens * context.training_data.distributed.world_size)


def refuse_changed_batches(context: RunContext, feeds: Mapping[str, Feed]) -> None:
    """Raise if steps would have a different number of samples than before: it would silently become a different run."""
    state, mixture = context.state, build_mixture(context.recipe)
    steps_by_source = Counter(mixture(step)[0] for step in range(state.step))
    expected = sum(count * feeds[name].batch_size for name, count in steps_by_source.items() if name in feeds)
    if state.samples != expected:
        raise MeristemError(
            f"{context.run.path} has read {state.samples:,} samples in {state.step:,} steps, and would have read "
            f"{expected:,} now: another version of meristem counted train.batch_tokens differently, or the shards have "
            "changed. Resume it with the version that started it, or start over with --fresh"
        )
