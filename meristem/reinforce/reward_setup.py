"""Setup of rewards: trains the judge models that they need, once, and reuses them afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, read_recipe, resolve_recipe
from meristem.corpus.cache_folder import cache_dir
from meristem.corpus.source_keys import corpus_digest
from meristem.reinforce.combined_reward import CombinedReward, add_reward_name
from meristem.reinforce.reward_base import REWARDS, RequiredRun, RewardContext
from meristem.reinforce.settings import RewardSettings
from meristem.training.pretraining import pretrain


def rewards_cache() -> Path:
    """The folder for judge models and word vectors of rewards that belong to no run."""
    return cache_dir() / "rewards"


def build_rewards(settings: Sequence[RewardSettings], folder: Path, console: Console) -> CombinedReward:
    """The rewards of these settings, with their judges trained.

    A judge is trained in folder/judges; one that was stopped is gone on with, one that is finished is used.
    """

    def log(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    check_rewards(settings)
    complete_settings = [_with_judge_runs(reward_settings, folder, console) for reward_settings in settings]
    return CombinedReward.from_settings(complete_settings, RewardContext(folder=folder, say=log))


def check_rewards(settings: Sequence[RewardSettings]) -> None:
    """Refuse settings that cannot work, all of them before the first run is trained or anything is fitted."""
    for reward_settings in settings:
        reward = REWARDS[reward_settings.name]
        judges = {key: _judge_recipe(run) for key, run in reward.required_runs(reward_settings).items()}
        try:
            reward.check_settings(reward_settings, judges)
        except MeristemError as error:
            raise MeristemError(add_reward_name(reward_settings.name, str(error))) from None


def _with_judge_runs(settings: RewardSettings, folder: Path, console: Console) -> RewardSettings:
    """The settings, with the path of every run that was trained for them."""
    runs = {
        key: str(_train_judge(run, settings.name, folder / "judges", console))
        for key, run in REWARDS[settings.name].required_runs(settings).items()
    }
    return settings.model_copy(update=runs) if runs else settings


def _judge_recipe(required_run: RequiredRun) -> PretrainRecipe:
    """The recipe of a run that a reward requires."""
    recipe = resolve_recipe(*read_recipe(required_run.recipe), required_run.overrides)
    if not isinstance(recipe, PretrainRecipe):
        raise MeristemError(f"{required_run.recipe}: a judge is pretrained on text; name a pretraining recipe")
    return recipe


def _train_judge(required_run: RequiredRun, reward_name: str, folder: Path, console: Console) -> Path:
    """The path of the finished judge run, trained now if it does not exist yet."""
    recipe = _judge_recipe(required_run)
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
