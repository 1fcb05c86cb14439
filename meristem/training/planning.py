"""Planning: how many steps a budget buys, from tokens counted and speed measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import torch

from meristem.batch import Batch, Objective
from meristem.errors import MeristemError
from meristem.learning.feed import Feed
from meristem.learning.mix import Mix
from meristem.recipe import Recipe
from meristem.training.budget import TRIAL_SECONDS, Cost, StepFlops, mean_cost, measure, planned_steps
from meristem.training.ending import Work


def mix_of(recipe: Recipe) -> Mix:
    """Which source has which step."""
    return Mix({source.name: source.weight for source in recipe.sources()}, recipe.train.seed)


def step_batches(feed: Feed, use: int) -> list[Batch]:
    """All micro-batches of one step."""
    return [feed.batch(use, micro) for micro in range(feed.micro_steps)]


def steps_per_epoch(feed: Feed) -> float:
    """Steps of one pass over a source."""
    return len(feed.view) / feed.rows


def plan(work: Work, feeds: Mapping[str, Feed], flops: Callable[[str], StepFlops], device: torch.device) -> None:
    """Turn the budget into steps, once; a budget that has grown is turned again.

    Of a mix every source counts as often as it has its turn; an epoch is one of the first source.
    """
    settings, standing = work.recipe.train, work.standing
    kind, value = settings.budget
    budget = f"{value:g} {kind}"
    if standing.budget == budget:
        return

    def cost() -> Cost:
        work.journal.say("Measuring the speed of this machine …")
        return _mean_cost(work, feeds, device)

    shares = mix_of(work.recipe).shares
    tokens = sum(shares[name] * _step_tokens(work, name, feed, flops) for name, feed in feeds.items())
    epoch = steps_per_epoch(next(iter(feeds.values())))
    total = planned_steps(settings, tokens_per_step=tokens, steps_per_epoch=epoch, cost=cost)
    total = work.material.team.told(total)  # each has measured its own speed
    if total < standing.step:
        taken = f"but the run has already taken {standing.step}; budgets may only grow"
        raise MeristemError(f"a budget of {budget} is {total} steps, {taken}")
    standing.total, standing.budget, standing.threads = total, budget, torch.get_num_threads()


def planned_tokens(work: Work, feeds: Mapping[str, Feed]) -> float:
    """Tokens that the whole budget reads."""
    shares = mix_of(work.recipe).shares
    return work.standing.total * sum(shares[name] * work.material.step_tokens(feed) for name, feed in feeds.items())


def _mean_cost(work: Work, feeds: Mapping[str, Feed], device: torch.device) -> Cost:
    """What a step costs on average: the steps of a mix's sources differ."""
    costs = {
        name: measure(
            work.learner,
            name,
            partial(step_batches, feed),
            work.recipe.train,
            device,
            seconds=TRIAL_SECONDS / len(feeds),
        )
        for name, feed in feeds.items()
    }
    return mean_cost(costs, mix_of(work.recipe).shares)


def _step_tokens(work: Work, name: str, feed: Feed, flops: Callable[[str], StepFlops]) -> float:
    """Tokens of a step: where texts are written first, as many as the first step had."""
    if type(feed.objective).explore is Objective.explore:
        return work.material.step_tokens(feed)
    return float(flops(name).tokens * work.material.team.size)


def refuse_other_batches(work: Work, feeds: Mapping[str, Feed]) -> None:
    """Refuse to resume a run whose steps had another number of samples: it would silently become another run."""
    standing, mix = work.standing, mix_of(work.recipe)
    steps = Counter(mix(step)[0] for step in range(standing.step))
    expected = sum(number * feeds[name].rows for name, number in steps.items() if name in feeds)
    if standing.samples != expected:
        raise MeristemError(
            f"{work.run.path} has read {standing.samples:,} samples in {standing.step:,} steps, and would have read "
            f"{expected:,} now: another version of meristem counted train.batch_tokens differently, or the shards have "
            "changed. Resume it with the version that began it, or start again with --fresh"
        )
