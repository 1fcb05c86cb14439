"""Resolution of pretraining, task and reward recipes by name or file, including settings taken from the start run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import RecipeError
from meristem.config.overrides import apply_overrides, expand_shorthands, parse_overrides
from meristem.config.recipe import (
    RECIPES_DIR,
    Recipe,
    builtin_reward_recipes,
    builtin_task_recipes,
    read_recipe,
    resolve_recipe,
)
from meristem.finetune import finetuning
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.task import TASKS
from meristem.interop.cached_import import resolve_run
from meristem.labelled.load import check_sources
from meristem.learning.build import required_capabilities
from meristem.learning.learner import task_backbone_mode
from meristem.reinforce.reward_setup import build_rewards, check_rewards, rewards_cache
from meristem.reinforce.reward_specs import (
    enclosing_run,
    functions_in_overrides,
    reject_reward_recipe,
    reject_untrusted_functions,
)
from meristem.training import pretraining
from meristem.training.default_learning_rate import default_learning_rate
from meristem.training.ignored_settings import refuse_ignored, refuse_ignored_in_file

Overrides = Mapping[str, Any] | Sequence[str]
COLUMN_FREE_SETTINGS = ("held_out", "limit", "seed")
"""Settings of `data` that are neither files nor columns."""
SECTIONS_FROM_START = ("model", "tokenizer")
"""Sections that a task or policy takes from the run it starts from."""


def resolve_pretrain_recipe(recipe: str | Path, overrides: Overrides = (), source: str | None = None) -> Recipe:
    """A pretraining recipe by name or file, with the source and overrides applied."""
    name, mapping = read_recipe(recipe)
    reject_reward_recipe(recipe, mapping)
    if source is not None:
        mapping = {**mapping, "corpus": {**(mapping.get("corpus") or {}), "source": source}}
    return _check_ignored_settings(
        _resolve_with_imported_weights(name, mapping, overrides), overrides, _user_file_settings(recipe, mapping)
    )


def _resolve_with_imported_weights(name: str, mapping: Mapping[str, Any], overrides: Overrides) -> Recipe:
    """A pretraining recipe; published weights that it starts from are imported, and their model settings are used.

    A recipe that starts from a run keeps its own model settings; overrides always apply.
    """
    resolved = resolve_recipe(name, mapping, overrides)
    if resolved.start.path is None or resolved.task is not None or resolved.policy is not None:
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


def resolve_task_recipe(recipe: str | Path | None = None, overrides: Overrides = ()) -> Recipe:
    """A task recipe by name or file, by default the one named after its task; the model is that of `from`.

    The `model` settings of the recipe, and the learning rate of a built-in one, are for training from scratch;
    overrides always apply.
    """
    given_config = apply_overrides({}, overrides)
    recipe_name = recipe or (given_config.get("task") or {}).get("name") or "classification"
    name, mapping = read_recipe(recipe_name)
    reject_reward_recipe(recipe_name, mapping)
    mapping = expand_shorthands(mapping)
    mapping = _drop_builtin_data(mapping, overrides)
    start = {**(mapping.get("start") or {}), **(given_config.get("start") or {})}
    if start.get("path") in (None, "scratch", "none"):
        return _check_ignored_settings(
            resolve_recipe(name, mapping, overrides), overrides, _user_file_settings(recipe, mapping)
        )
    if get_close_matches(str(start["path"]), ["scratch"]) and not Path(start["path"]).exists():
        raise RecipeError(f"from: no run {start['path']}, did you mean scratch?")
    file_settings = _user_file_settings(recipe, mapping, SECTIONS_FROM_START)
    path = resolve_run(start["path"])  # published weights are imported on first use
    start_recipe = load_recipe(RunFolder.open(path))
    mapping["model"], mapping["tokenizer"] = (
        getattr(start_recipe, section).model_dump(mode="json") for section in ("model", "tokenizer")
    )
    learning_rate = default_learning_rate(start_recipe)
    if (
        learning_rate is not None
        and str(recipe_name) in builtin_task_recipes()
        and mapping["task"]["name"] != "probe"
        and _trains_all_weights(start)
    ):
        mapping["train"]["learning_rate"] = learning_rate
    if (
        str(recipe_name) in builtin_task_recipes()
        and mapping["task"].get("lm_weight")
        and not _reads_causally(mapping, start_recipe)
    ):
        del mapping["task"][
            "lm_weight"
        ]  # GPT-1's auxiliary language model loss, which the recipe sets for its own causal model
    resolved = _check_ignored_settings(resolve_recipe(name, mapping, overrides), overrides, file_settings)
    return replace(resolved, start=resolved.start.model_copy(update={"path": str(path)}))


def _check_ignored_settings(recipe: Recipe, overrides: Overrides, file_settings: Mapping[str, Any] | None) -> Recipe:
    """The recipe; refuses settings in overrides or in the user's recipe file that the run would ignore."""
    refuse_ignored(recipe, parse_overrides(overrides))
    if file_settings is not None:
        refuse_ignored_in_file(recipe, file_settings, _resolve_without_overrides(recipe, file_settings))
    return recipe


def _user_file_settings(
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


def _drop_builtin_data(mapping: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
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


def resolve_policy_recipe(recipe: str | Path, overrides: Overrides, start_path: Path, console: Console) -> Recipe:
    """A reward recipe with the model of `from`; a start recipe is trained first, into `start_path`."""
    name, mapping = read_recipe(recipe)
    mapping = _drop_builtin_data(mapping, overrides)
    config = apply_overrides(mapping, overrides)
    if (run := enclosing_run(Path(recipe))) is not None:
        for section in ("rewards", "judge"):
            reject_untrusted_functions(
                config.get(section), run, allowed=functions_in_overrides(parse_overrides(overrides))
            )
    if "policy" not in config:
        raise RecipeError(
            f"{name} has no policy section; built-in recipes with rewards: {', '.join(builtin_reward_recipes())}"
        )
    start_config = config.get("start") or {}
    if start_config.get("path") is None and start_config.get("recipe") is None:
        raise RecipeError(
            "from: missing; give a generative model with from=RUN, or train one first with from.recipe=NAME"
        )
    path = resolve_run(
        start_config["path"]
        if start_config.get("path")
        else _train_start_run(start_config["recipe"], start_path, console)
    )
    start_recipe = load_recipe(RunFolder.open(path))
    model_config = start_recipe.model.model_dump(mode="json")
    # no dropout: the log-probabilities of a rollout must be those of the forward pass that trains on it
    model_config |= {key: 0.0 for key in model_config if key.endswith("dropout")}
    tokenizer_config = start_recipe.tokenizer.model_dump(mode="json")
    merged = {**expand_shorthands(mapping), "model": model_config, "tokenizer": tokenizer_config}
    resolved = _check_ignored_settings(resolve_recipe(name, merged, overrides), overrides, None)
    return replace(resolved, start=resolved.start.model_copy(update={"path": str(path)}))


@dataclass(frozen=True, kw_only=True)
class ReinforceSetup:
    """A resolved reward recipe with its fitted rewards and judge."""

    recipe: Recipe
    rewards: Any
    judge: Any


def prepare_reinforce(recipe: str | Path, overrides: Overrides, out: Path, console: Console) -> ReinforceSetup:
    """Train the start model and fit the rewards if necessary: the start next to the run, rewards in the shared cache.

    Errors in the recipe are reported before anything is trained.
    """
    check_reinforce_recipe(recipe, overrides)
    resolved = resolve_policy_recipe(recipe, overrides, Path(f"{out}-start"), console)
    rewards = build_rewards(resolved.rewards, rewards_cache(), console)
    judge = build_rewards(resolved.judge, rewards_cache(), console) if resolved.judge else None
    return ReinforceSetup(recipe=resolved, rewards=rewards, judge=judge)


def check_reinforce_recipe(recipe: str | Path, overrides: Overrides) -> None:
    """Refuse wrong settings, missing prompts and invalid rewards, as far as possible without a model."""
    name, mapping = read_recipe(recipe)
    config = apply_overrides(_drop_builtin_data(mapping, overrides), overrides)
    if "policy" not in config or (Path(recipe) / "recipe.yaml").is_file():
        return  # resolve_policy_recipe reports it, and refuses functions named by a run before any is imported
    # the start run's model and tokenizer are not known yet; every other section is checked
    placeholder = {"model": {"family": "gpt2"}, "tokenizer": {}}
    resolved = resolve_recipe(name, {**config, **placeholder})
    own_overrides = {
        key: value for key, value in parse_overrides(overrides).items() if key.split(".")[0] not in SECTIONS_FROM_START
    }
    _check_ignored_settings(resolved, own_overrides, _user_file_settings(recipe, mapping, SECTIONS_FROM_START))
    if resolved.data.train is None:
        raise RecipeError(
            "data.train: missing; give a file of prompts: one prompt per line, or columns prompt and target"
        )
    check_sources(resolved.data)
    check_rewards([*resolved.rewards, *resolved.judge])


def _train_start_run(recipe: str, out: Path, console: Console) -> Path:
    """Train the start model of a reward run, or resume its training; returns its run folder."""
    if RunFolder(out).exists() and RunFolder(out).finish_record is not None:
        return out
    console.print(f"Training the start model first: {recipe} in {out}", highlight=False, markup=False, soft_wrap=True)
    if "task" in read_recipe(recipe)[1]:
        return finetuning.finetune(resolve_task_recipe(recipe), out, fresh=False, console=console).run
    return pretraining.pretrain(resolve_pretrain_recipe(recipe), out, fresh=False, console=console).run
