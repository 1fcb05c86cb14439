"""From a resolved recipe to a finished run: text, shards, model, loop, last words."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console

from meristem.batch import Batch
from meristem.checkpoint import disk, load
from meristem.checkpoint.revive import recipe_of, revive
from meristem.checkpoint.run import Run, aside
from meristem.drawing.curves import can_draw, draw
from meristem.evaluation.held_out import SEED, held_out
from meristem.learning.assemble import check, feeds_of, learner_of
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.mix import Mix
from meristem.recipe import Recipe
from meristem.settings import MeristemError
from meristem.store.prepare import store_for, tokenizer_for
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import card
from meristem.training.budget import Cost, flops_of, measure, peak_flops, planned_steps
from meristem.training.going_on import refuse_another_run
from meristem.training.journal import Journal, duration
from meristem.training.loop import Evaluate, Loop, restore, told
from meristem.training.optimizers import optimizers
from meristem.training.standing import Standing
from meristem.training.start import from_run
from meristem.training.step import Stepper, device_of
from meristem.training.vectors import from_vectors

DATA = "data.json"
BEGUN = ".begun"
"""Without a recipe beside it, it tells a start that was killed from a folder of something else."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run is made from: words, shards per source, and batches of each split."""

    tokenizer: Tokenizer
    stores: Mapping[str, Store]
    keys: Mapping[str, str]
    """Which shards each source reads, so that a run keeps the ones it began with."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run at the end of its budget."""

    run: Path
    step: int
    metrics: dict[str, float]
    """The numbers on validation text of the weights the run ends with: the best where it stops early."""
    test: dict[str, float]
    used: dict[str, float]


def pretrain(recipe: Recipe, out: Path, *, fresh: bool, console: Console) -> Ended:
    """Train, or go on training, until the budget is used up."""
    check(recipe)
    if fresh and out.exists():
        console.print(f"The old run is kept as {aside(out)}")
    before = Run(out) if Run(out).exists() else None
    if before is not None:
        refuse_another_run(recipe_of(before), recipe, out)
    elif out.is_file() or (out.exists() and any(out.iterdir()) and not (out / BEGUN).exists()):
        what = "a file" if out.is_file() else "a folder of something else"
        raise MeristemError(f"{out} is {what}: choose another place with --out")
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    material = gather(recipe, before, console)
    run = before or _create(out, recipe, material)
    with run.locked():
        loaded = load.load(run.checkpoints)
        step = loaded.snapshot.step if loaded is not None else 0
        run.trim_metrics(step)  # what was measured after the checkpoint will be measured again
        with Journal(run.path, console, after=step) as journal:
            return _train(recipe, run, material, loaded, journal)


def gather(recipe: Recipe, before: Run | None, console: Console) -> Material:
    """The tokenizer and the shards, made now or found again."""
    sources = recipe.sources()
    begun: dict[str, str] = json.loads((before.path / DATA).read_text()) if before and (before.path / DATA).is_file() else {}
    start = recipe.start
    if before is not None:
        tokenizer = Tokenizer.load(before.tokenizer_path)
    elif start.path is not None and start.take == "all" and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(Run.open(Path(start.path)).tokenizer_path)
    else:
        tokenizer = tokenizer_for(recipe.tokenizer, [source.corpus for source in sources], console)
    words = recipe.tokenizer.kind == "words"
    made = {s.name: store_for(s.corpus, tokenizer, recipe.store, words=words, console=console, key=begun.get(s.name)) for s in sources}
    return Material(tokenizer=tokenizer, stores={n: p.store for n, p in made.items()}, keys={n: p.key for n, p in made.items()})


def _create(out: Path, recipe: Recipe, material: Material) -> Run:
    out.mkdir(parents=True, exist_ok=True)
    (out / BEGUN).touch()
    words = out / "tokenizer.json"
    material.tokenizer.save(words)
    disk.replace(out / DATA, [json.dumps(dict(material.keys), indent=1).encode()])
    run = Run.create(out, recipe_text(recipe), words)
    (out / BEGUN).unlink(missing_ok=True)
    return run


def recipe_text(recipe: Recipe) -> str:
    """The resolved recipe as its run keeps it."""
    return f"# {recipe.name} — resolved: every default written out\n" + yaml.safe_dump(recipe.plain(), sort_keys=False, allow_unicode=True)


def _train(recipe: Recipe, run: Run, material: Material, loaded: load.Loaded | None, journal: Journal) -> Ended:
    settings, device = recipe.train, device_of(recipe.train)
    learner = learner_of(recipe, material.tokenizer)
    if loaded is None:
        _begin(recipe, learner, material.tokenizer, journal)
    learner.to(device)
    feeds = feeds_of(recipe, learner.objectives, material.tokenizer, material.stores, split="train", seed=settings.seed)
    stepper = Stepper(learner=learner, optimizers=optimizers(learner.model, settings), settings=settings, device=device)
    standing = Standing()
    if loaded is not None:
        for notice in loaded.notices:
            journal.say(notice)
        standing = restore(stepper, loaded.snapshot)
    _plan(recipe, learner, feeds, standing, journal, device)
    if standing.ended(settings.patience):
        if (facts := run.finished) is not None:
            return _nothing_to_do(run, standing, facts, journal)
        return _finish(recipe, run, learner, material, standing, journal, None)  # it was killed after its last step
    _settle(learner, recipe)
    validation = _evaluator(recipe, learner, material, "validation", journal)
    flops = {name: flops_of(learner, name, step_batches(feed, 0)) for name, feed in feeds.items()}
    loop = Loop(
        run=run, recipe=recipe_text(recipe), settings=settings, stepper=stepper, feeds=feeds, journal=journal, standing=standing,
        mix=Mix({s.name: s.weight for s in recipe.sources()}, settings.seed), flops=flops, peak=peak_flops(device), evaluate=validation,
        describe_samples=lambda name, ids: texts_of(feeds[name], material.tokenizer, ids), frozen=recipe.start.frozen,
    )
    _announce(recipe, run, learner, material, standing, journal)
    run.reopen()
    found = loop.fit()
    return _finish(recipe, run, learner, material, standing, journal, found)


def _nothing_to_do(run: Run, standing: Standing, facts: Mapping[str, Any], journal: Journal) -> Ended:
    if standing.step >= standing.total:
        journal.say(f"{run.path} has used its budget ({standing.budget}): nothing to do. A larger one goes on, "
                    f"for instance train.steps={standing.total * 2}")
    else:
        journal.say(f"{run.path} stopped early at step {standing.step}, the best was at {standing.best_step}: nothing to do")
    return Ended(run=run.path, step=standing.step, metrics=facts.get("validation", {}), test=facts.get("test", {}),
                 used=_used(standing))


def _begin(recipe: Recipe, learner: Learner, tokenizer: Tokenizer, journal: Journal) -> None:
    """Weights from elsewhere, where the recipe asks for them."""
    start = recipe.start
    if start.vectors is not None:
        journal.say(from_vectors(learner.model, tokenizer, Path(start.vectors)))
    if start.path is not None:
        other = revive(Path(start.path))
        journal.say(from_run(learner.model, tokenizer, other, embeddings_only=start.take == "embeddings"))


def _settle(learner: Learner, recipe: Recipe) -> None:
    """How the backbone is run, which changes nothing it computes."""
    for module in learner.modules():
        if hasattr(module, "recompute"):
            module.recompute = recipe.train.recompute
    if recipe.train.compile:
        learner.model.backbone.compile()


def step_batches(feed: Feed, use: int) -> list[Batch]:
    """All micro-batches of one step."""
    return [feed.batch(use, micro) for micro in range(feed.micro_steps)]


def _plan(recipe: Recipe, learner: Learner, feeds: Mapping[str, Feed], standing: Standing, journal: Journal, device: torch.device) -> None:
    """Turn the budget into steps, once; a budget that has grown is turned again."""
    settings = recipe.train
    kind, value = settings.budget
    budget = f"{value:g} {kind}"
    if standing.budget == budget:
        return
    name, feed = next(iter(feeds.items()))

    def cost() -> Cost:
        journal.say("Measuring the speed of this machine …", quiet=True)
        return measure(learner, name, lambda step: step_batches(feed, step), settings, device)

    total = planned_steps(settings, tokens_per_step=feed.rows * recipe.model.length, steps_per_epoch=len(feed.view) / feed.rows, cost=cost)
    if total < standing.step:
        raise MeristemError(f"a budget of {budget} is {total} steps, but the run has already taken {standing.step}; budgets may only grow")
    standing.total, standing.budget, standing.threads = total, budget, torch.get_num_threads()


def _evaluator(recipe: Recipe, learner: Learner, material: Material, split: str, journal: Journal) -> Evaluate | None:
    """A function that evaluates every source that has held-out text of that split; none where there is too little."""
    try:
        feeds = feeds_of(recipe, learner.objectives, material.tokenizer, material.stores, split=split, seed=SEED)
    except MeristemError as error:  # what trains well may be too little to evaluate on
        journal.say(f"nothing will be measured on {split} text: {error}")
        return None
    if not feeds:
        return None
    rows = max(1, recipe.train.evaluate_tokens // recipe.model.length) if split == "validation" else None
    weights = {s.name: s.weight for s in recipe.sources() if s.name in feeds}

    def evaluate() -> dict[str, float]:
        found: dict[str, float] = {}
        for name, feed in feeds.items():
            stream = material.stores[name].split(split)
            metrics = held_out(learner, name, feed, rows=rows, bytes_per_token=stream.bytes / max(1, len(stream))).metrics()
            found.update(metrics if len(feeds) == 1 else {f"{name}.{key}": value for key, value in metrics.items()})
        if len(feeds) > 1:
            found = {"loss": sum(w * found[f"{n}.loss"] for n, w in weights.items()) / sum(weights.values()), **found}
        return found

    return evaluate


def _evaluated(recipe: Recipe, learner: Learner, material: Material, split: str, journal: Journal) -> dict[str, float]:
    evaluate = _evaluator(recipe, learner, material, split, journal)
    return {} if evaluate is None else evaluate()


def texts_of(feed: Feed, tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The beginnings of samples, for a person to recognise them."""
    return [tokenizer.decode(feed.at(number, 1).inputs["tokens"][0].tolist())[:80] for number in ids]


def _announce(recipe: Recipe, run: Run, learner: Learner, material: Material, standing: Standing, journal: Journal) -> None:
    parameters = sum(p.numel() for p in learner.model.parameters())
    tokens = {name: len(store.split("train")) for name, store in material.stores.items()}
    verb = f"Going on at step {standing.step:,} of" if standing.step else "Training"
    objective = ", ".join(o.name for o in learner.objectives.values())
    journal.say(f"{verb} {recipe.name}: {recipe.model.family}, {parameters / 1e6:.1f} M parameters, {objective}, on "
                f"{sum(tokens.values()):,} tokens; {standing.total:,} steps ({standing.budget}) in {run.path}")
    if any("validation" not in store.splits for store in material.stores.values()):
        journal.say("too few documents to hold any out: no validation loss will be shown")
    rows = recipe.train.batch_tokens // recipe.model.length
    if sum(tokens.values()) < rows * recipe.model.length:
        journal.say(f"the text is smaller than one batch of {recipe.train.batch_tokens:,} tokens: every step repeats it")


def _used(standing: Standing) -> dict[str, float]:
    return {"steps": standing.step, "tokens": standing.tokens, "flops": standing.flops, "minutes": standing.seconds / 60}


def _finish(recipe: Recipe, run: Run, learner: Learner, material: Material, standing: Standing, journal: Journal,
            found: dict[str, float] | None) -> Ended:
    """The test split, once; the model card; and last the word that the run is finished."""
    if recipe.train.patience is not None and standing.best_step != standing.step:
        best = load.load(run.checkpoints, which="best")
        if best is not None:
            learner.model.load_state_dict(best.snapshot.model)
            found = None
    if found is None:
        found = _evaluated(recipe, learner, material, "validation", journal)
    test = _evaluated(recipe, learner, material, "test", journal)
    used = _used(standing)
    disk.replace(run.path / "README.md", [card.text(recipe, learner, material.stores, standing, found, test).encode()])
    if test and not journal.holds("test", standing.step):
        journal.record("test", standing.step, test)
        journal.say(f"test  {told(test)}")
    run.finish({"step": standing.step, "validation": found, "test": test, "used": used, "finished": time.strftime("%Y-%m-%d %H:%M:%S")})
    if can_draw():
        draw(run.metrics_path, run.path / "curves.png", title=f"{recipe.name}: {standing.step:,} steps, {standing.tokens:,} tokens")
    journal.say(f"Done: {standing.step:,} steps, {standing.tokens:,} tokens, {standing.flops:.2e} FLOPs in "
                f"{duration(standing.seconds)}; {run.path} holds the model")
    return Ended(run=run.path, step=standing.step, metrics=found, test=test, used=used)
