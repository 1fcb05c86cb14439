"""From a resolved recipe to a finished run, whatever it is made from: material, model, loop, last words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from meristem.batch import Batch
from meristem.checkpoint import load, transfer
from meristem.checkpoint.revive import recipe_of, revive
from meristem.checkpoint.run import Run, aside
from meristem.errors import MeristemError
from meristem.learning.assemble import check, learner_of
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.mix import Mix
from meristem.learning.spread import Spread, gathered
from meristem.learning.team import Team, joined, restarted
from meristem.recipe import Recipe
from meristem.training import suited
from meristem.training.budget import TRIAL_SECONDS, Cost, flops_of, mean_cost, measure, peak_flops, planned_steps
from meristem.training.ending import Ended, Work, finish, used
from meristem.training.going_on import refuse_another_run, refuse_edited_recipe
from meristem.training.journal import Journal
from meristem.training.loop import Loop
from meristem.training.material import Evaluate, Material, create, recipe_text, refuse_other_things
from meristem.training.named_files import refuse_missing
from meristem.training.optimizers import optimizers
from meristem.training.restoring import restore
from meristem.training.standing import Standing
from meristem.training.start import from_run
from meristem.training.step import Stepper, device_of
from meristem.training.thawing import Thawing, prepare
from meristem.training.vectors import from_vectors

Gather = Callable[[Recipe, Run | None, Console, Team], Material]
"""The material of a new run, or the very material that an old one began with."""
QUIET = Console(quiet=True)


def run_recipe(
    recipe: Recipe, out: Path, *, gather: Gather, fresh: bool, console: Console, initial: Recipe | None = None
) -> Ended:
    """Train, or go on training, until the budget is used up; with all processes that torchrun started, if it did.

    A new run starts with the fresh weights of `initial`, where both recipes have them, or with its own.
    """
    check(recipe)
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    with joined(device_of(recipe.train), seconds=recipe.train.timeout) as team:
        with team.in_turn():
            if team.first:
                before = _before(recipe, out, console, fresh=fresh and not restarted())
                material = gather(recipe, before, console, team)
                run = before or create(out, recipe, material)
            else:
                run = Run.open(out)
                material = gather(recipe, run, QUIET, team)
        with run.locked() if team.first else nullcontext():
            loaded = load.load(run.checkpoints) if team.first else None
            step = team.told(loaded.snapshot.step if loaded is not None else 0)
            if step and not team.first:
                loaded = load.load(run.checkpoints, step=step)
            if team.first:
                run.trim_metrics(step)  # what was measured after the checkpoint will be measured again
            with Journal(run.path, console, after=step) if team.first else Journal(None, QUIET) as journal:
                return _train(recipe, run, material, loaded, journal, initial)


def _before(recipe: Recipe, out: Path, console: Console, *, fresh: bool) -> Run | None:
    """The run that is gone on with, if there is one; an old one that is not wanted is put aside."""
    if fresh and out.exists():
        console.print(f"The old run is kept as {aside(out)}")
    before = Run(out) if Run(out).exists() else None
    if before is not None:
        refuse_another_run(recipe_of(before), recipe, out)
    else:
        refuse_missing(recipe)
        refuse_other_things(out)
    return before


def _train(
    recipe: Recipe,
    run: Run,
    material: Material,
    loaded: load.Loaded | None,
    journal: Journal,
    initial: Recipe | None = None,
) -> Ended:
    settings, team = recipe.train, material.team
    device = device_of(settings) if team.size == 1 else team.device
    learner = learner_of(recipe, material.tokenizer)
    work = Work(recipe=recipe, run=run, material=material, learner=learner, standing=Standing(), journal=journal)
    if loaded is None:
        if initial is not None:
            transfer.into(learner.model, learner_of(initial, material.tokenizer).model.state_dict())
        _begin(work)
    prepare(learner.model, recipe.start)
    if loaded is not None:
        for notice in loaded.notices:
            journal.say(notice)
        refuse_edited_recipe(run.path, loaded.path, recipe)
        if strange := transfer.not_finite(loaded.snapshot.model):
            raise MeristemError(f"{loaded.path}: weights that are not finite cannot be trained on: {strange}")
        transfer.restore(learner.model, loaded.snapshot.model)
        work.standing = Standing.of(loaded.snapshot.state, step=loaded.snapshot.step)
        if team.size == 1:
            _pin_threads(work)
    learner.to(device)
    feeds = material.feeds(recipe, learner.objectives, split="train", seed=settings.seed)
    _plan(work, feeds, device)
    if work.standing.ended(settings.patience):
        facts = run.finished
        return finish(work, None) if facts is None else _nothing_to_do(work, facts)  # None: killed after its last step
    _settle(work)
    _announce(work)
    if team.first:
        run.reopen()
    flops = {name: _flops_per_token(work, name, step_batches(feed, 0)) for name, feed in feeds.items()}
    spread = Spread(learner, team, shard=settings.shard)
    made = optimizers(learner.model, settings, team)
    stepper = Stepper(
        learner=learner,
        optimizers=made,
        settings=settings,
        device=device,
        spread=spread,
        histories=work.standing.histories,
    )
    if loaded is not None:
        restore(stepper, loaded.snapshot, feeds)
    found = _loop(work, stepper, feeds, flops, device).fit()
    if spread.sharded:
        work.learner = _whole(work, device)
    return finish(work, found)


def _pin_threads(work: Work) -> None:
    """Resume with the number of threads the run began with: others sum in another order, and round otherwise."""
    recorded, now, asked = work.standing.threads, torch.get_num_threads(), work.recipe.train.threads
    if not recorded or recorded == now:
        return
    if asked is None:
        torch.set_num_threads(recorded)
        work.journal.say(f"Resuming with {recorded} threads, as the run began (this machine would use {now})")
    else:
        work.journal.say(
            f"train.threads={asked}, and the run began with {recorded}: its numbers will differ in the last digits "
            "from those of a run that was never stopped"
        )


def _whole(work: Work, device: torch.device) -> Learner:
    """The learner with its weights in one place again, for whatever is done with it after training."""
    weights = gathered(work.learner.model.state_dict(keep_vars=True))
    learner = learner_of(work.recipe, work.material.tokenizer)
    prepare(learner.model, work.recipe.start)
    transfer.restore(learner.model, weights)
    return learner.to(device)


def _loop(
    work: Work, stepper: Stepper, feeds: Mapping[str, Feed], flops: Mapping[str, float], device: torch.device
) -> Loop:
    recipe = work.recipe
    return Loop(
        run=work.run,
        recipe=recipe_text(recipe),
        settings=recipe.train,
        stepper=stepper,
        feeds=feeds,
        journal=work.journal,
        standing=work.standing,
        mix=Mix({s.name: s.weight for s in recipe.sources()}, recipe.train.seed),
        flops=flops,
        peak=peak_flops(device),
        evaluate=_evaluator(work, stepper, device),
        regret=work.material.regret,
        describe_samples=lambda name, ids: work.material.texts(feeds[name], ids),
        watch=work.material.watcher(work.learner, work.journal, work.standing.total),
        thaw=Thawing(work.learner.model, recipe.start, _epoch(next(iter(feeds.values())))),
    )


def _evaluator(work: Work, stepper: Stepper, device: torch.device) -> Evaluate | None:
    """What measures the model on validation samples; a task's answers come from whole weights."""
    material, say = work.material, work.journal.say
    plain = material.evaluator(work.recipe, work.learner, "validation", say)
    if plain is None or work.recipe.task is None or stepper.spread is None or not stepper.spread.sharded:
        return plain

    def evaluate() -> dict[str, float]:
        stepper.settle()
        whole = material.evaluator(work.recipe, _whole(work, device), "validation", say)
        assert whole is not None
        return whole()

    return evaluate


def _nothing_to_do(work: Work, facts: Mapping[str, Any]) -> Ended:
    standing, place = work.standing, work.run.path
    if standing.step >= standing.total:
        work.journal.say(
            f"{place} has used its budget ({standing.budget}): nothing to do. A larger one goes on, "
            f"for instance train.steps={standing.total * 2}"
        )
    elif standing.stopped:
        work.journal.say(f"{place} stopped at step {standing.step}: {standing.stopped}")
    else:
        work.journal.say(f"{place} stopped early at step {standing.step} ({standing.best_told()}): nothing to do")
    validation, test = (_numbers(facts.get(split, {})) for split in ("validation", "test"))
    return Ended(
        run=place,
        step=standing.step,
        metrics=validation,
        test=test,
        used=used(standing),
        tries=work.material.tries(str(place), work.learner.model),
        judged_by=work.material.judged_by,
    )


def _numbers(kept: Mapping[str, float | None]) -> dict[str, float]:
    """Metrics as they were before JSON, where null is NaN."""
    return {name: math.nan if value is None else value for name, value in kept.items()}


def _begin(work: Work) -> None:
    """Weights from elsewhere, where the recipe asks for them."""
    start, model, tokenizer = work.recipe.start, work.learner.model, work.material.tokenizer
    if start.vectors is not None:
        work.journal.say(from_vectors(model, tokenizer, Path(start.vectors), work.material.passages()))
    if start.path is not None and start.take != "nothing":
        other = revive(Path(start.path))
        for notice in other.notices:
            work.journal.say(f"{start.path}: {notice}")
        work.journal.say(from_run(model, tokenizer, other, take=start.take, recipe=work.recipe))
        if line := suited.told(work.recipe, other.recipe):
            work.journal.say(line)


def _settle(work: Work) -> None:
    """How the backbone is run, which changes nothing it computes."""
    for module in work.learner.modules():
        if hasattr(module, "recompute"):
            module.recompute = work.recipe.train.recompute
    if work.recipe.train.compile:
        work.learner.model.backbone.compile()


def _flops_per_token(work: Work, name: str, batches: Sequence[Batch]) -> float:
    return flops_of(work.learner, name, batches) / max(1, sum(batch.tokens for batch in batches))


def step_batches(feed: Feed, use: int) -> list[Batch]:
    """All micro-batches of one step."""
    return [feed.batch(use, micro) for micro in range(feed.micro_steps)]


def _epoch(feed: Feed) -> float:
    """Steps of one pass over a source."""
    return len(feed.view) / feed.rows


def _plan(work: Work, feeds: Mapping[str, Feed], device: torch.device) -> None:
    """Turn the budget into steps, once; a budget that has grown is turned again."""
    settings, standing = work.recipe.train, work.standing
    kind, value = settings.budget
    budget = f"{value:g} {kind}"
    if standing.budget == budget:
        return
    feed = next(iter(feeds.values()))

    def cost() -> Cost:
        work.journal.say("Measuring the speed of this machine …", quiet=True)
        return _mean_cost(work, feeds, device)

    tokens = work.material.step_tokens(feed)
    total = planned_steps(settings, tokens_per_step=tokens, steps_per_epoch=_epoch(feed), cost=cost)
    total = work.material.team.told(total)  # each has measured its own speed
    if total < standing.step:
        taken = f"but the run has already taken {standing.step}; budgets may only grow"
        raise MeristemError(f"a budget of {budget} is {total} steps, {taken}")
    standing.total, standing.budget, standing.threads = total, budget, torch.get_num_threads()


def _mean_cost(work: Work, feeds: Mapping[str, Feed], device: torch.device) -> Cost:
    """What a step costs on average: the steps of a mix's sources differ."""
    mix = Mix({source.name: source.weight for source in work.recipe.sources()}, work.recipe.train.seed)
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
    return mean_cost(costs, mix.shares)


def _announce(work: Work) -> None:
    recipe, standing, say = work.recipe, work.standing, work.journal.say
    sizes = [(p.numel(), p.requires_grad) for p in work.learner.model.parameters()]
    parameters, learning = sum(size for size, _ in sizes), sum(size for size, learns in sizes if learns)
    some = "" if learning == parameters else f" ({learning:,} of them learn)"
    verb = f"Going on at step {standing.step:,} of" if standing.step else "Training"
    objective = ", ".join(o.name for o in work.learner.objectives.values())
    size, *more = work.material.about(recipe)
    team = work.material.team
    together = f" with {team.size} processes" if team.size > 1 else ""
    say(
        f"{verb} {recipe.name}: {recipe.model.family}, {parameters / 1e6:.1f} M parameters{some}, {objective}, on "
        f"{size}; {standing.total:,} steps ({standing.budget}) in {work.run.path}{together}"
    )
    for line in more:
        say(line)
