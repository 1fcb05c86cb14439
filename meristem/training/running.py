"""From a resolved recipe to a finished run, whatever it is made from: material, model, loop, last words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from meristem.checkpoint import load, transfer
from meristem.checkpoint.revive import recipe_of, revive
from meristem.checkpoint.run import Run, aside, explain_write_errors
from meristem.errors import MeristemError
from meristem.learning.assemble import check, learner_of
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.spread import Spread, gathered
from meristem.learning.team import Team, joined, restarted
from meristem.recipe import Recipe
from meristem.shell_commands import shell_path
from meristem.training import suited
from meristem.training.budget import peak_flops, step_flops
from meristem.training.ending import Ended, Work, finish, used
from meristem.training.going_on import refuse_another_run, refuse_edited_recipe
from meristem.training.journal import Journal
from meristem.training.loop import Loop
from meristem.training.material import Evaluate, Material, create, forget_unstarted, recipe_text, refuse_other_things
from meristem.training.named_files import refuse_missing
from meristem.training.optimizers import optimizers
from meristem.training.planning import (
    mix_of,
    plan,
    planned_tokens,
    refuse_other_batches,
    step_batches,
    steps_per_epoch,
)
from meristem.training.restoring import restore
from meristem.training.settings import OFF
from meristem.training.standing import Standing
from meristem.training.start import from_run
from meristem.training.step import Stepper, device_of, dtype_of
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
        with explain_write_errors(run.path), run.locked() if team.first else nullcontext():
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
        console.print(f"The old run is kept as {aside(out)}", highlight=False, markup=False, soft_wrap=True)
    before = Run(out) if Run(out).exists() else None
    if before is not None and forget_unstarted(before):
        line = f"{out}: the run there never took a step; starting over"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
        before = None
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
    if loaded is not None and recipe.task is None and recipe.policy is None:
        refuse_other_batches(work, feeds)
    flops = cache(lambda name: step_flops(learner, name, step_batches(feeds[name], 0)))
    plan(work, feeds, flops, device)
    work.planned_tokens = planned_tokens(work, feeds)
    if work.standing.ended(settings.patience):
        facts = run.finished
        return finish(work, None) if facts is None else _nothing_to_do(work, facts)  # None: killed after its last step
    _settle(work)
    _announce(work)
    if team.first:
        run.reopen()
    if work.standing.flops_per_token.keys() != feeds.keys():  # counted on a copy, which a sharded model has none of
        work.standing.flops_per_token = {name: flops(name).per_token for name in feeds}
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
    found = _loop(work, stepper, feeds, device).fit()
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


def _loop(work: Work, stepper: Stepper, feeds: Mapping[str, Feed], device: torch.device) -> Loop:
    recipe = work.recipe
    return Loop(
        run=work.run,
        recipe=recipe_text(recipe),
        settings=recipe.train,
        stepper=stepper,
        feeds=feeds,
        journal=work.journal,
        standing=work.standing,
        mix=mix_of(work.recipe),
        flops=work.standing.flops_per_token,
        peak=peak_flops(device, dtype=dtype_of(recipe.train, device)),
        evaluate=_evaluator(work, stepper, device),
        evaluations=work.material.evaluations(work.evaluated, work.planned_tokens),
        regret=work.material.regret,
        describe_samples=lambda name, ids: work.material.texts(feeds[name], ids),
        watch=work.material.watcher(work.learner, work.journal, work.standing.total),
        thaw=Thawing(work.learner.model, recipe.start, steps_per_epoch(next(iter(feeds.values())))),
    )


def _evaluator(work: Work, stepper: Stepper, device: torch.device) -> Evaluate | None:
    """What measures the model on validation samples; a task's answers come from whole weights."""
    if work.recipe.train.evaluate_every == OFF:
        return None
    material, say = work.material, work.journal.say
    plain = material.evaluator(work.evaluated, work.learner, "validation", say)
    if plain is None or work.recipe.task is None or stepper.spread is None or not stepper.spread.sharded:
        return plain

    def evaluate() -> dict[str, float]:
        stepper.settle()
        whole = material.evaluator(work.evaluated, _whole(work, device), "validation", say)
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
        tries=work.material.tries(shell_path(place), work.learner.model),
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
