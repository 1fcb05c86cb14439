"""Rewards made ready: the runs that they lack are trained first, once, and found again afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.checkpoint.run import Run
from meristem.corpus.refining import cache
from meristem.corpus.sources import digest
from meristem.recipe import Recipe, read, resolve
from meristem.settings import find
from meristem.training.pretraining import pretrain


def desk() -> Path:
    """Where rewards keep their judges and vectors when they belong to no run."""
    return cache() / "rewards"


def rewarded(settings: Sequence[Any], folder: Path, console: Console) -> Any:
    """The rewards of these settings (`Rewards` of reinforce/combined.py), with all that they lacked.

    A judge is trained in folder/judges; one that was stopped is gone on with, one that is finished is used.
    """
    rewards = find("reinforce", "combined")

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    check_rewards(settings)
    whole = [_fulfilled(one, rewards.orders(one), folder, console) for one in settings]
    return rewards.made(whole, folder, say)


def check_rewards(settings: Sequence[Any]) -> None:
    """Refuse settings that cannot work, all of them before the first run is trained or anything is fitted."""
    rewards = find("reinforce", "combined")
    for one in settings:
        rewards.check_settings(one, {key: _ordered(order) for key, order in rewards.orders(one).items()})


def _fulfilled(settings: Any, orders: dict[str, Any], folder: Path, console: Console) -> Any:
    """The settings with every run that was ordered."""
    runs = {key: str(_trained(order, settings.name, folder / "judges", console)) for key, order in orders.items()}
    return settings.model_copy(update=runs) if runs else settings


def _ordered(order: Any) -> Recipe:
    """The recipe of a run that a reward lacks."""
    name, mapping = read(order.recipe)
    return resolve(name, mapping, order.overrides)


def _trained(order: Any, reward: str, folder: Path, console: Console) -> Path:
    """A finished run of an order."""
    recipe = _ordered(order)
    out = folder / f"{recipe.name}-{_key(recipe)}"
    if Run(out).exists() and Run(out).finished is not None:
        return out
    kind, value = recipe.train.budget
    source = ", ".join(map(str, recipe.corpus.sources))
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    say(
        f"Training a judge: {recipe.name} in {out}\n"
        f"  {reward} judges by a model of {source}, which is trained first, for {value:g} {kind}; it is kept there and "
        f"used again\n  at once wherever text and settings are the same. With a run of yours nothing is trained: "
        f"--reward {reward},run=RUN"
    )
    return pretrain(recipe, out, fresh=False, console=console).run


def _key(recipe: Recipe) -> str:
    """What a judge is known by: its recipe, and the text behind it as it is now."""
    plain = {key: value for key, value in recipe.plain().items() if key != "from"}
    texts = [digest(source.corpus) for source in recipe.sources() if source.corpus is not None]
    whole = json.dumps([plain, texts], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
