"""The recipe of a federated run: which recipes can be trained so, and their budget in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meristem.config.errors import RecipeError
from meristem.config.recipe import PretrainRecipe
from meristem.learning.build import check_recipe
from meristem.recipe_resolution import resolve_pretrain_recipe
from meristem.training.settings import BUDGETS
from meristem.trust.federated.settings import FederatedSettings


def resolve_federated_recipe(name: str, overrides: Mapping[str, Any], settings: FederatedSettings) -> PretrainRecipe:
    """A pretraining recipe with the budget of the rounds; refuses what federated training would ignore."""
    if given := [key for key in overrides if key.removeprefix("train.") in BUDGETS and key.startswith("train.")]:
        raise RecipeError(
            f"{given[0]}: the budget of federated training is federated.rounds × federated.local_steps optimizer "
            "steps of each client; set these"
        )
    if given := [key for key in overrides if key == "corpus.source"]:
        raise RecipeError(
            f"{given[0]}: each client names its own text in clients.yaml; tokenizer.source=FILE is a public sample "
            "for the tokenizer"
        )
    recipe = resolve_pretrain_recipe(name, overrides)
    if not isinstance(recipe, PretrainRecipe):
        raise RecipeError(f"{name}: federated training pretrains on text; this recipe is for a task or a policy")
    check_recipe(recipe)
    _refuse_unsupported(recipe)
    budget = dict.fromkeys(BUDGETS) | {"steps": settings.rounds * settings.local_steps}
    return replace(recipe, train=recipe.train.model_copy(update=budget))


def _refuse_unsupported(recipe: PretrainRecipe) -> None:
    """Raise on settings of a single run that have no meaning over several clients."""
    train, start, corpus = recipe.train, recipe.start, recipe.corpus
    unsupported = {
        "mix": (bool(recipe.mix), "each client trains one objective (or a sum) on its own text"),
        "phases": (bool(recipe.phases), "train the phases one after the other, with from=RUN"),
        "corpus.target": (corpus.target is not None, "clients have plain text"),
        "corpus.image": (corpus.image is not None, "clients have plain text"),
        "train.patience": (train.patience is not None, "the number of rounds is fixed"),
        "train.load_best_at_end": (bool(train.load_best_at_end), "the last weights are the result"),
        "train.ema_decay": (train.ema_decay is not None, "the server averages weights already"),
        "train.batch_ramp": (train.batch_ramp > 0, "all steps of a client have the same batch"),
        "train.length_ramp": (train.length_ramp > 0, "all steps of a client have the same rows"),
        "train.fsdp": (train.fsdp, "a client is one process"),
        "train.single_task_baselines": (train.single_task_baselines, "there is one objective"),
        "from.word_vectors": (start.word_vectors is not None, "start from a run, with from=RUN"),
        "from.unfreeze_every": (start.unfreeze_every is not None, "all rounds train the same weights"),
        "from.embeddings_only_steps": (start.embeddings_only_steps > 0, "all rounds train the same weights"),
    }
    for setting, (is_set, reason) in unsupported.items():
        if is_set:
            raise RecipeError(f"{setting}: not in federated training: {reason}; leave it out")
