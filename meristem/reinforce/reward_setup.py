"""Setup of rewards: trains the judge models that they need, once, and reuses them afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, read_recipe, resolve_recipe
from meristem.corpus.cache_folder import cache_dir
from meristem.corpus.source_keys import corpus_digest
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import RequiredRun
from meristem.training.pretraining import pretrain


def rewards_cache() -> Path:
    """The folder for judge models and word vectors of rewards that belong to no run."""
    return cache_dir() / "rewards"


def build_rewards(settings: Sequence[Any], folder: Path, console: Console) -> CombinedReward:
    """The rewards of these settings, with their judges trained.

    A judge is trained in folder/judges; one that was stopped is gone on with, one that is finished is used.
    """

    def log(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    check_rewards(settings)
    complete_settings = [
        _with_judge_runs(setting, CombinedReward.required_runs(setting), folder, console) for setting in settings
    ]
    return CombinedReward.build(complete_settings, folder, log)


def check_rewards(settings: Sequence[Any]) -> None:
    """Refuse settings that cannot work, all of them before the first run is trained or anything is fitted."""
    for setting in settings:
        CombinedReward.check_settings(
            setting, {key: _judge_recipe(order) for key, order in CombinedReward.required_runs(setting).items()}
        )


def _with_judge_runs(settings: Any, judge_orders: Mapping[str, RequiredRun], folder: Path, console: Console) -> Any:
    """The settings, with the path of every run that was trained for them."""
    runs = {
        key: str(_train_judge(order, settings.name, folder / "judges", console)) for key, order in judge_orders.items()
    }
    return settings.model_copy(update=runs) if runs else settings


def _judge_recipe(order: RequiredRun) -> PretrainRecipe:
    """The recipe of a run that a reward requires."""
    name, mapping = read_recipe(order.recipe)
    recipe = resolve_recipe(name, mapping, order.overrides)
    if not isinstance(recipe, PretrainRecipe):
        raise MeristemError(f"{name}: a judge is pretrained on text; name a pretraining recipe")
    return recipe


def _train_judge(order: RequiredRun, reward_name: str, folder: Path, console: Console) -> Path:
    """The path of the finished judge run, trained now if it does not exist yet."""
    recipe = _judge_recipe(order)
    out = folder / f"{recipe.name}-{_judge_key(recipe)}"
    if RunFolder(out).exists() and RunFolder(out).finish_record is not None:
        return out
    kind, value = recipe.train.budget
    source = ", ".join(map(str, recipe.corpus.sources))
    log = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    log(
        f"Training a judge: {recipe.name} in {out}\n"
        f"  The reward {reward_name} needs a model of {source}; it is trained first, for {value:g} {kind}, and reused\n"
        f"  whenever text and settings are the same. To use a run of your own instead: --reward {reward_name},run=RUN"
    )
    return pretrain(recipe, out, fresh=False, console=console).run


def _judge_key(recipe: PretrainRecipe) -> str:
    """The cache key of a judge: a hash of its recipe and of the current content of its corpus."""
    settings = {key: value for key, value in recipe.to_hashed_dict().items() if key != "from"}
    corpus_digests = [corpus_digest(source.corpus) for source in recipe.sources()]
    content = json.dumps([settings, corpus_digests], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
