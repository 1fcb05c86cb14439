"""Settings of a comparison: arms, budget, seeds, learning-rate trials and measures; from YAML or the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from meristem.config.errors import RecipeError, did_you_mean
from meristem.config.overrides import parse_overrides
from meristem.config.recipe import builtin_recipes
from meristem.config.settings import Settings
from meristem.config.validation import build_settings
from meristem.labelled.settings import DataSettings
from meristem.utils import untrusted_files

BUDGET_KINDS = ("flops", "tokens", "steps", "minutes")
BudgetKind = Literal["flops", "tokens", "steps", "minutes"]
BUILTIN_SOURCE = "builtin:microworld-en"
BUILTIN_TASKS = ("builtin:microworld-topics", "builtin:microworld-pos")
DEFAULT_FLOPS = 3e12
QUICK_STEPS, QUICK_BATCH_TOKENS = 10, 512
"""Pretraining of a quick comparison: steps, so that the budgets of so few are equal."""
QUICK_TASK = {"train.epochs": 1, "data.limit": 200}
"""Settings of every fine-tuning of a quick comparison."""


class ArmSettings(Settings):
    """One arm of a comparison: a recipe with overrides; arms may differ in fine-tuning only."""

    recipe: str | None = None
    """A built-in recipe, a YAML file, or a run to continue from; none if this arm trains nothing before its tasks."""
    settings: dict[str, Any] = {}
    """Settings that differ from the recipe, dotted key → value."""
    runs_of: str | None = None
    """Another arm whose pretraining runs this arm is fine-tuned from."""
    task_settings: dict[str, Any] = {}
    """Settings of every fine-tuning of this arm, dotted key → value."""

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        if self.runs_of is not None and (self.recipe is not None or self.settings):
            raise ValueError("runs_of: an arm has a recipe of its own or another arm's runs; remove one of them")
        return self


class BudgetSettings(Settings):
    """What every arm of a comparison may spend."""

    kind: BudgetKind = "flops"
    """What is held equal: flops, tokens, steps or minutes."""
    amount: float = Field(DEFAULT_FLOPS, gt=0)
    """How much of it each run of each arm gets."""


class ComparedTaskSettings(Settings):
    """A labelled file that every pretrained model is fine-tuned on."""

    data: str | dict[str, Any]
    """A labelled file, builtin:NAME, or settings of `data`: train, validation, test, text, label, …"""
    name: str | None = None
    """Name of the measure; that of the file if not set."""
    task: str | None = None
    """The task; tagging for .conll files and pair for files with a second text if not set, else classification."""
    labels: tuple[int, ...] = ()
    """Numbers of training samples of a few-label curve; all of them only if not set."""
    all_labels: bool = True
    """Train with all samples too, beside the numbers of `labels`."""
    method: Literal["finetune", "probe"] = "finetune"
    """Fine-tune all weights, or train only the head on the frozen model (linear probe)."""
    settings: dict[str, Any] = {}
    """Settings of the fine-tuning, dotted key → value."""

    @model_validator(mode="before")
    @classmethod
    def _say_where_columns_are_named(cls, values: Any) -> Any:
        """Columns are part of `data`, unlike on the command line of finetune."""
        names = {str(key): str(key).removeprefix("data.") for key in values} if isinstance(values, Mapping) else {}
        for key, name in names.items():
            if key not in cls.model_fields and name in DataSettings.model_fields:
                example = f"{{train: {values.get('data', 'FILE')}, {name}: {values[key]}}}"
                raise ValueError(f"{key}: columns and splits are named with the file: data: {example}")
        return values


class ComparisonSettings(Settings):
    """A comparison: arms × seeds × measures."""

    arms: dict[str, ArmSettings]
    """Name → recipe with overrides; differences are taken from the first one."""
    source: str | tuple[str, ...] = BUILTIN_SOURCE
    """Text that every arm trains on: a file, folder, glob, builtin:NAME, or several of these."""
    budget: BudgetSettings = BudgetSettings.model_validate({})
    """What every run may spend."""
    seeds: int = Field(3, ge=1)
    """Seeds 0, 1, … of every arm."""
    learning_rates: tuple[float, ...] = ()
    """Multiples of the recipe's learning rate tried for each arm with seed 0; the recipe's own if not set."""
    trial_share: float = Field(0.25, gt=0, le=1)
    """Share of the budget that a trial of a learning rate gets."""
    shared_tokenizer: bool = True
    """Give all arms the tokenizer of the first one, except families that read characters or whole words."""
    tasks: tuple[ComparedTaskSettings, ...] = ()
    """Labelled files."""
    pairs: tuple[str, ...] = ()
    """Files or folders of minimal pairs."""
    settings: dict[str, Any] = {}
    """Settings of all arms, dotted key → value."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of every run; auto is what is faster for all of them, chosen once."""

    @property
    def source_names(self) -> str:
        """The sources in one line."""
        return self.source if isinstance(self.source, str) else ", ".join(self.source)


def read_comparison(path: Path) -> ComparisonSettings:
    """The comparison in a YAML file; an arm or a task may be given by its name or file alone."""
    loaded = untrusted_files.read_yaml(path)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("arms"), dict | list):
        raise RecipeError(f"{path}: a comparison is a mapping with arms: a list of recipes, or name → recipe")
    return build_comparison(loaded, str(path))


def build_comparison(
    values: Mapping[str, Any], section: str = "comparison", *, min_arms: int = 2
) -> ComparisonSettings:
    """Validated settings; shorthands for arms, tasks and the budget (`{flops: 1e14}`) are expanded."""
    arms = values["arms"]
    named = arms if isinstance(arms, Mapping) else {_arm_name(recipe): recipe for recipe in arms}
    if len(named) < min_arms:
        raise RecipeError(f"{section}.arms: a comparison needs at least two arms; give two recipes or more")
    expanded = {
        **values,
        "arms": {name: {"recipe": arm} if isinstance(arm, str) else arm for name, arm in named.items()},
        "tasks": [{"data": task} if isinstance(task, str) else task for task in values.get("tasks", ())],
    }
    if isinstance(budget := values.get("budget"), Mapping) and "kind" not in budget:
        expanded["budget"] = _parse_budget(budget, section)
    comparison = build_settings(ComparisonSettings, expanded, section)
    assert isinstance(comparison, ComparisonSettings)
    _check_arms(comparison, section)
    return comparison


def _check_arms(comparison: ComparisonSettings, section: str) -> None:
    """Names that are folders, and runs of arms that have some."""
    for name, arm in comparison.arms.items():
        if not name or "/" in name or "\\" in name or name.startswith("."):
            raise RecipeError(f"{section}.arms: {name!r}: a name is part of a folder's; use letters, digits and spaces")
        if arm.runs_of is not None and getattr(comparison.arms.get(arm.runs_of), "recipe", None) is None:
            with_runs = [other for other, settings in comparison.arms.items() if settings.recipe is not None]
            raise RecipeError(
                f"{section}.arms.{name}.runs_of: {arm.runs_of!r} is no arm with a recipe"
                f"{did_you_mean(arm.runs_of, with_runs)}"
            )
        if arm.recipe is None and not comparison.tasks:
            raise RecipeError(f"{section}.arms.{name}: an arm without a recipe needs tasks to be trained on")


def comparison_of_recipes(
    recipes: Sequence[str],
    settings: Mapping[str, Any] | Sequence[str] = (),
    *,
    source: str | None = None,
    seeds: int = 3,
    tasks: Sequence[str] = (),
    pairs: Sequence[str] = (),
    quick: bool = False,
) -> ComparisonSettings:
    """The comparison of recipes by name; without a source and tasks, on built-in ones."""
    parsed = parse_overrides(settings)
    budgets = {key.removeprefix("train."): value for key, value in parsed.items() if key in _BUDGET_SETTINGS}
    values: dict[str, Any] = {
        "arms": list(recipes),
        "seeds": seeds,
        "pairs": list(pairs),
        "tasks": [
            {"data": task, "settings": QUICK_TASK if quick else {}}
            for task in (tasks if tasks or source is not None else BUILTIN_TASKS)
        ],
        "settings": {
            **({"train.batch_tokens": QUICK_BATCH_TOKENS} if quick else {}),
            **{key: value for key, value in parsed.items() if key not in _BUDGET_SETTINGS},
        },
        "budget": budgets or ({"steps": QUICK_STEPS} if quick else {"flops": DEFAULT_FLOPS}),
    }
    return build_comparison(values if source is None else {**values, "source": source})


def split_words(words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """Recipes, the text source (None if not given) and key=value settings among the words of a command line."""
    settings = [word for word in words if re.match(r"[\w.-]+=", word) and not Path(word).exists()]
    names = [word for word in words if word not in settings]
    sources = [name for name in names if not _is_recipe(name)]
    unknown = [name for name in sources if not Path(name).exists() and not any(sign in name for sign in ":/*?.")]
    if unknown:
        known = list(builtin_recipes())
        raise RecipeError(f"{unknown[0]!r} is neither a recipe nor a file{did_you_mean(unknown[0], known)}")
    if len(sources) > 1:
        raise RecipeError(f"compare: {sources[0]} and {sources[1]} are both no recipe; give one text source")
    return [name for name in names if name not in sources], next(iter(sources), None), settings


_BUDGET_SETTINGS = tuple(f"train.{kind}" for kind in BUDGET_KINDS)


def _parse_budget(budget: Mapping[str, Any], section: str) -> dict[str, Any]:
    kinds = [kind for kind in BUDGET_KINDS if kind in budget]
    if len(kinds) != 1 or len(budget) != 1:
        raise RecipeError(f"{section}.budget: give exactly one of {', '.join(BUDGET_KINDS)}, for instance flops: 1e14")
    return {"kind": kinds[0], "amount": budget[kinds[0]]}


def _is_recipe(name: str) -> bool:
    path = Path(name)
    return name in builtin_recipes() or path.suffix in {".yaml", ".yml"} or (path / "recipe.yaml").is_file()


def _arm_name(recipe: Any) -> str:
    if not isinstance(recipe, str):
        raise RecipeError(
            f"comparison.arms: {recipe!r}: name an arm with settings, as NAME: {{recipe: …, settings: …}}"
        )
    return Path(recipe).stem
