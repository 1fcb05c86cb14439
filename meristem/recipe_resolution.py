"""Resolution of pretraining and task recipes by name or file: overrides, and the settings taken from the start run.

A recipe file is read, its shorthands are expanded, overrides are applied, sections of the start run are taken over, and
the whole is validated; then settings that would have no effect are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import RecipeError
from meristem.config.overrides import apply_overrides, expand_shorthands, parse_overrides
from meristem.config.recipe import (
    RECIPES_DIR,
    PretrainRecipe,
    Recipe,
    builtin_task_recipes,
    read_recipe,
    resolve_recipe,
)
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.task import TASKS
from meristem.interop.cached_import import resolve_run
from meristem.learning.build import required_capabilities
from meristem.learning.learner import task_backbone_mode
from meristem.reinforce.reward_specs import (
    enclosing_run,
    reject_reward_recipe,
)
from meristem.training.default_learning_rate import default_learning_rate
from meristem.training.ignored_settings import refuse_ignored, refuse_ignored_in_file

Overrides = Mapping[str, Any] | Sequence[str]
COLUMN_FREE_SETTINGS = ("held_out", "limit", "seed")
"""Settings of `data` that are neither files nor columns."""
SECTIONS_FROM_START = ("model", "tokenizer")
"""Sections that a task or policy takes from the run it starts from."""


def resolve_pretrain_recipe(
    recipe: str | Path, overrides: Overrides = (), source: str | Sequence[str] | None = None
) -> Recipe:
    """A pretraining recipe by name or file, with the source or sources and overrides applied."""
    name, mapping = read_recipe(recipe)
    reject_reward_recipe(recipe, mapping)
    if source is not None:
        sources = source if isinstance(source, str) else list(source)
        mapping = {**mapping, "corpus": {**(mapping.get("corpus") or {}), "source": sources}}
    return check_ignored_settings(
        _resolve_with_imported_weights(name, mapping, overrides), overrides, user_file_settings(recipe, mapping)
    )


def _resolve_with_imported_weights(name: str, mapping: Mapping[str, Any], overrides: Overrides) -> Recipe:
    """A pretraining recipe; published weights that it starts from are imported, and their model settings are used.

    A recipe that starts from a run keeps its own model settings; overrides always apply.
    """
    resolved = resolve_recipe(name, mapping, overrides)
    if resolved.start.path is None or not isinstance(resolved, PretrainRecipe):
        return resolved
    path = resolve_run(resolved.start.path)
    if path == Path(resolved.start.path) or resolved.start.load == "nothing":
        return resolved
    start_recipe = load_recipe(RunFolder.open(path))
    sections = {"model": start_recipe.model.model_dump(mode="json")} if resolved.start.load == "all" else {}
    if sections and resolved.start.tokenizer == "keep":
        sections["tokenizer"] = start_recipe.tokenizer.model_dump(mode="json")
    resolved = resolve_recipe(name, {**expand_shorthands(mapping), **sections}, overrides)
    return replace(resolved, start=resolved.start.model_copy(update={"path": str(path)}))


def task_run_name(recipe: str | Path | None, overrides: Overrides) -> str:
    """The name of a fine-tuning run: that of its recipe, by default the one named after its task."""
    return read_recipe(_task_recipe_of(recipe, apply_overrides({}, overrides)))[0]


def _task_recipe_of(recipe: str | Path | None, config: Mapping[str, Any]) -> str | Path:
    return recipe or (config.get("task") or {}).get("name") or "classification"


def resolve_task_recipe(recipe: str | Path | None = None, overrides: Overrides = ()) -> Recipe:
    """A task recipe by name or file, by default the one named after its task; the model is that of `from`.

    The `model` settings of the recipe, and the learning rate of a built-in one, are for training from scratch;
    overrides always apply.
    """
    given_config = apply_overrides({}, overrides)
    recipe_name = _task_recipe_of(recipe, given_config)
    name, mapping = read_recipe(recipe_name)
    reject_reward_recipe(recipe_name, mapping)
    mapping = expand_shorthands(mapping)
    mapping = drop_builtin_data(mapping, overrides)
    start = {**(mapping.get("start") or {}), **(given_config.get("start") or {})}
    if start.get("path") in (None, "scratch", "none"):
        return check_ignored_settings(
            resolve_recipe(name, mapping, overrides), overrides, user_file_settings(recipe, mapping)
        )
    if get_close_matches(str(start["path"]), ["scratch"]) and not Path(start["path"]).exists():
        raise RecipeError(f"from: no run {start['path']}, did you mean scratch?")
    file_settings = user_file_settings(recipe, mapping, SECTIONS_FROM_START)
    path = resolve_run(start["path"])  # published weights are imported on first use
    start_recipe = load_recipe(RunFolder.open(path))
    mapping |= sections_from_start(start_recipe)
    if str(recipe_name) in builtin_task_recipes():
        _adapt_to_start(mapping, start_recipe, trains_all=_trains_all_weights(start))
    resolved = check_ignored_settings(resolve_recipe(name, mapping, overrides), overrides, file_settings)
    return replace(resolved, start=resolved.start.model_copy(update={"path": str(path)}))


def sections_from_start(start_recipe: Recipe) -> dict[str, Any]:
    """The sections that a task or policy takes from the run it starts from, as plain data."""
    return {
        "model": start_recipe.model.model_dump(mode="json"),
        "tokenizer": start_recipe.tokenizer.model_dump(mode="json"),
    }


def _adapt_to_start(mapping: dict[str, Any], start_recipe: Recipe, *, trains_all: bool) -> None:
    """Change what a built-in task recipe sets for training its own small model from scratch."""
    learning_rate = default_learning_rate(start_recipe)
    if learning_rate is not None and trains_all and mapping["task"]["name"] != "probe":
        mapping["train"]["learning_rate"] = learning_rate
    if mapping["task"].get("lm_weight") and not _reads_causally(mapping, start_recipe):
        del mapping["task"]["lm_weight"]  # GPT-1's auxiliary language model loss


def check_ignored_settings(recipe: Recipe, overrides: Overrides, file_settings: Mapping[str, Any] | None) -> Recipe:
    """The recipe; refuses settings in overrides or in the user's recipe file that the run would ignore."""
    refuse_ignored(recipe, parse_overrides(overrides))
    if file_settings is not None:
        refuse_ignored_in_file(recipe, file_settings, _resolve_without_overrides(recipe, file_settings))
    return recipe


def user_file_settings(
    recipe: str | Path | None, mapping: Mapping[str, Any], replaced: Collection[str] = ()
) -> Mapping[str, Any] | None:
    """The settings in the user's recipe file; None for built-in recipes and for recipes written by a run.

    Sections `replaced` by those of the start run are left out.
    """
    path = Path(recipe or "")
    if path.suffix not in {".yaml", ".yml"} or RECIPES_DIR in path.resolve().parents or enclosing_run(path) is not None:
        return None
    return {key: value for key, value in expand_shorthands(mapping).items() if key not in replaced}


def _resolve_without_overrides(recipe: Recipe, file_settings: Mapping[str, Any]) -> Recipe | None:
    """The recipe file resolved without overrides; None if it is not a complete recipe."""
    try:
        return resolve_recipe(recipe.name, {"model": recipe.model.model_dump(mode="json"), **file_settings})
    except RecipeError:
        return None


def drop_builtin_data(mapping: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """The recipe without its built-in data and their columns, if the overrides set other data."""
    data = mapping.get("data") or {}
    own_data = apply_overrides({}, overrides).get("data") or {}
    if "train" not in own_data or not isinstance(data, Mapping):
        return dict(mapping)
    replaces_builtin = str(data.get("train")).startswith("builtin:") and _dataset_name(
        own_data["train"]
    ) != _dataset_name(data.get("train"))
    remaining = {key: value for key, value in data.items() if not str(value).startswith("builtin:")}
    return {
        **mapping,
        "data": {key: value for key, value in remaining.items() if key in COLUMN_FREE_SETTINGS or not replaces_builtin},
    }


def _dataset_name(source: Any) -> str:
    """The name of a data set without size and seed: `builtin:microworld-pos` of `builtin:microworld-pos?size=40`."""
    return str(source).partition("?")[0]


def _reads_causally(mapping: Mapping[str, Any], start_recipe: Recipe) -> bool:
    """Whether a task would use causal attention on the model of the start run."""
    task, family = TASKS[str(mapping["task"]["name"])], MODEL_FAMILIES[start_recipe.model.family]
    return (
        bool(task.requires_any & family.capabilities)
        and task_backbone_mode(task, family, required_capabilities(start_recipe)) == "causal"
    )


def _trains_all_weights(start: Mapping[str, Any]) -> bool:
    """Whether all weights are loaded and trained (no frozen layers, no LoRA)."""
    return start.get("load", "all") == start.get("train", "all") == "all" and "lora" not in start
