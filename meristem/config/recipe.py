"""Recipes: a YAML file and dotted overrides, resolved into validated settings.

A recipe is a mapping of sections. It becomes a `PretrainRecipe`, a `FinetuneRecipe` or a `ReinforceRecipe`, which has
the sections of its kind; each section is of the settings class that is defined beside what it configures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import yaml

from meristem.config.errors import RecipeError, did_you_mean
from meristem.config.overrides import apply_overrides, expand_shorthands
from meristem.config.recipe_format import FORMAT_KEY, RECIPE_FORMAT, RENAMED_SECTIONS, migrate_recipe
from meristem.config.recipe_parts import (
    HeadSettings,
    TrainingSource,
    build_named,
    parse_heads,
    parse_mix,
    parse_objectives,
    parse_phases,
    parse_rewards,
)
from meristem.config.registry import ComponentKind
from meristem.config.sections import SECTIONS
from meristem.config.setting_names import with_hashed_names
from meristem.config.settings import Settings
from meristem.config.validation import build_settings
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.settings import DatasetSettings
from meristem.labelled.settings import DataSettings
from meristem.models.settings import ImageModelSettings, ModelSettings
from meristem.objectives.settings import ObjectiveSettings
from meristem.reinforce.settings import PolicySettings, RewardSettings
from meristem.tasks.settings import TaskSettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.training.settings import GridSettings, StartSettings, TrainSettings
from meristem.utils import untrusted_files

RECIPES_DIR = Path(__file__).parents[1] / "recipes"
Dump = Callable[[Settings], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """A resolved recipe: the sections that every kind of run has."""

    name: str
    model: ModelSettings
    tokenizer: TokenizerSettings
    train: TrainSettings
    start: StartSettings
    heads: Mapping[str, HeadSettings] = field(default_factory=dict)

    @property
    @abstractmethod
    def objectives(self) -> Mapping[str, tuple[ObjectiveSettings, ...]]:
        """Source of training samples → what is trained on it, several in a sum."""

    @property
    def source_weights(self) -> dict[str, float]:
        """Source of training samples → sampling weight."""
        return dict.fromkeys(self.objectives, 1.0)

    @property
    def evaluation_weights(self) -> dict[str, float]:
        """Source → its weight in the loss of an evaluation."""
        return self.source_weights

    @property
    def tuned_task(self) -> TaskSettings | None:
        """The task that the model is, or was before, fine-tuned for."""
        return None

    @property
    def image_size(self) -> int:
        """Height and width of the images that the model reads, in pixels; those of stored images if it reads none."""
        if isinstance(self.model, ImageModelSettings):
            return self.model.image_size
        return DatasetSettings.model_validate({}).image_size

    @property
    def data_settings(self) -> DataSettings:
        """How labelled files are read: as the run's own, or with the defaults."""
        return DataSettings.model_validate({})

    @property
    def uses_best_checkpoint(self) -> bool:
        """Whether the run ends with its best checkpoint on validation data instead of its last one."""
        keep_best = self.train.load_best_at_end
        return keep_best if keep_best is not None else self.train.patience is not None

    def head_labels(self, head: str) -> tuple[str, ...]:
        """The labels of a head, in order; empty for regression or if unknown."""
        if self.tuned_task is not None and self.tuned_task.name == head:
            return self.tuned_task.head_labels
        labels = self.heads[head].labels if head in self.heads else ()
        return labels if len(labels) > 1 else ()

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain data for YAML, with all defaults written out."""
        return self._dump(lambda settings: settings.model_dump(mode="json"))

    def to_hashed_dict(self) -> dict[str, Any]:
        """The recipe as plain data under the names that are hashed, which no rename changes."""
        sections = self._dump(lambda settings: with_hashed_names(settings, settings.model_dump(mode="json")))
        first_names = {current: old for old, current in RENAMED_SECTIONS.items()}
        return {first_names.get(section, section): value for section, value in sections.items()}

    def _dump(self, dump: Dump) -> dict[str, Any]:
        heads = {"heads": {name: dump(head) for name, head in self.heads.items()}} if self.heads else {}
        return {**self._dump_own(dump), **heads, "train": dump(self.train), "from": dump(self.start)}

    @abstractmethod
    def _dump_own(self, dump: Dump) -> dict[str, Any]:
        """The sections of this kind of run, and the tokenizer and model among them."""

    def with_name(self, name: str) -> Self:
        """The same recipe under another name."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe(Recipe):
    """Objectives on a corpus, a mix of several sources with objectives of their own, or objectives in phases."""

    corpus: CorpusSettings
    dataset: DatasetSettings
    objective: tuple[ObjectiveSettings, ...] = ()
    mix: tuple[TrainingSource, ...] = ()
    phases: tuple[TrainingSource, ...] = ()
    """Sources that are trained on one after the other; their weights are shares of the steps."""

    def sources(self) -> tuple[TrainingSource, ...]:
        """The sources of training samples; a recipe without `mix` and `phases` has one."""
        return self.mix or self.phases or (TrainingSource(name="main", objective=self.objective, corpus=self.corpus),)

    @property
    def objectives(self) -> Mapping[str, tuple[ObjectiveSettings, ...]]:
        """Source → its objectives."""
        return {source.name: source.objective for source in self.sources()}

    @property
    def source_weights(self) -> dict[str, float]:
        """Source → sampling weight."""
        return {source.name: source.weight for source in self.sources()}

    @property
    def evaluation_weights(self) -> dict[str, float]:
        """Source → its weight in the loss of an evaluation: with phases, that of the last one counts."""
        if self.phases:
            return {source.name: float(source is self.phases[-1]) for source in self.phases}
        return self.source_weights

    def _dump_own(self, dump: Dump) -> dict[str, Any]:
        sections = {"corpus": self.corpus, "tokenizer": self.tokenizer, "dataset": self.dataset, "model": self.model}
        dumped: dict[str, Any] = {name: dump(settings) for name, settings in sections.items()}
        if self.phases:
            phases = [
                {
                    "name": phase.name,
                    "share": phase.weight,
                    "objective": [dump(objective) for objective in phase.objective],
                }
                for phase in self.phases
            ]
            return {**dumped, "phases": phases}
        if not self.mix:
            return {**dumped, "objective": [dump(objective) for objective in self.objective]}
        mix = [
            {
                "name": source.name,
                "weight": source.weight,
                "objective": [dump(objective) for objective in source.objective],
                "corpus": dump(source.corpus),
            }
            for source in self.mix
        ]
        return {**dumped, "mix": mix}


@dataclass(frozen=True, kw_only=True)
class SampleRecipe(Recipe):
    """A recipe that trains on samples instead of a corpus."""

    data: DataSettings

    @property
    def data_settings(self) -> DataSettings:
        """How labelled files are read: as the run's own."""
        return self.data

    @property
    def uses_best_checkpoint(self) -> bool:
        """Whether the run ends with its best checkpoint; it does unless that is switched off."""
        return self.train.load_best_at_end is not False


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe(SampleRecipe):
    """A task on labelled data."""

    task: TaskSettings
    grid: GridSettings
    """Hyperparameter grid; each combination becomes its own run."""

    @property
    def objectives(self) -> Mapping[str, tuple[ObjectiveSettings, ...]]:
        """The task, as its only source."""
        return {"task": (self.task,)}

    @property
    def tuned_task(self) -> TaskSettings:
        """The task."""
        return self.task

    def _dump_own(self, dump: Dump) -> dict[str, Any]:
        sections = {"task": self.task, "data": self.data, "tokenizer": self.tokenizer, "model": self.model}
        return {name: dump(settings) for name, settings in sections.items()}


@dataclass(frozen=True, kw_only=True)
class ReinforceRecipe(SampleRecipe):
    """Rewards on what a policy generates for prompts."""

    policy: PolicySettings
    rewards: tuple[RewardSettings, ...]
    judge: tuple[RewardSettings, ...] = ()
    """Rewards that are not trained on, used to evaluate the policy at the end."""
    task: TaskSettings | None = None
    """The task that the model was fine-tuned for before."""

    @property
    def objectives(self) -> Mapping[str, tuple[ObjectiveSettings, ...]]:
        """The policy, as its only source."""
        return {"policy": (self.policy,)}

    @property
    def tuned_task(self) -> TaskSettings | None:
        """The task that the model was fine-tuned for before."""
        return self.task

    def _dump_own(self, dump: Dump) -> dict[str, Any]:
        task = {} if self.task is None else {"task": dump(self.task)}
        sections = {"policy": self.policy, "data": self.data, "tokenizer": self.tokenizer, "model": self.model}
        rewards = {"rewards": [dump(part) for part in self.rewards], "judge": [dump(part) for part in self.judge]}
        return {**task, **{name: dump(settings) for name, settings in sections.items()}, **rewards}


def builtin_recipes() -> dict[str, Path]:
    """Built-in pretraining recipes by name, those by budget last."""
    return {path.stem: path for path in sorted(RECIPES_DIR.glob("*.yaml"))} | builtin_budget_recipes()


def builtin_budget_recipes() -> dict[str, Path]:
    """Built-in recipes for 10 minutes, an hour and a night, by name."""
    return {path.stem: path for path in sorted((RECIPES_DIR / "budgets").glob("*.yaml"))}


def builtin_task_recipes() -> dict[str, Path]:
    """Built-in task recipes by name."""
    return {path.stem: path for path in sorted((RECIPES_DIR / "tasks").glob("*.yaml"))}


def builtin_reward_recipes() -> dict[str, Path]:
    """Built-in reward recipes by name."""
    return {path.stem: path for path in sorted((RECIPES_DIR / "rewards").glob("*.yaml"))}


def recipe_summary(path: Path) -> str:
    """A recipe's first comment line, without its file name."""
    first_line = path.read_text(encoding="utf-8").splitlines()[:1]
    text = first_line[0].lstrip("# ").strip() if first_line and first_line[0].startswith("#") else ""
    return text.split(" — ", 1)[-1]


def read_recipe(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """Name and mapping of a recipe: a YAML file, a built-in one, or a run to continue from."""
    path = Path(recipe)
    if (path / "recipe.yaml").is_file():
        return f"{path.resolve().name}-on", {**parse_recipe_file(path / "recipe.yaml"), "from": str(path)}
    if path.suffix not in {".yaml", ".yml"}:
        recipes = {**builtin_recipes(), **builtin_task_recipes(), **builtin_reward_recipes()}
        if str(recipe) not in recipes:
            raise RecipeError(f"no recipe {str(recipe)!r}{did_you_mean(str(recipe), list(recipes))}")
        path = recipes[str(recipe)]
    if not path.is_file():
        raise RecipeError(f"no recipe file {path}")
    return path.stem, parse_recipe_file(path)


def parse_recipe_file(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, with current names; only plain data is accepted."""
    loaded = untrusted_files.read_yaml(path)
    if loaded is None:
        loaded = {}
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of sections (corpus, tokenizer, model, objective, train)")
    return migrate_recipe(loaded, path)


def recipe_yaml(recipe: Recipe) -> str:
    """The resolved recipe and its format number as YAML, for the recipe.yaml of a run."""
    title = f"# {recipe.name} — resolved: every default written out\n"
    return title + yaml.safe_dump({FORMAT_KEY: RECIPE_FORMAT, **recipe.to_dict()}, sort_keys=False, allow_unicode=True)


def resolve_recipe(name: str, mapping: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str] = ()) -> Recipe:
    """Apply overrides and validate every section; raises a RecipeError that names the setting."""
    config = expand_shorthands(apply_overrides(mapping, overrides))
    _refuse_unknown_sections(config)
    # sections of another kind of recipe are validated too
    sections: dict[str, Any] = {
        section: build_settings(cls, config.get(section) or {}, "from" if section == "start" else section)
        for section, cls in SECTIONS.items()
    }
    common: dict[str, Any] = {
        "name": name,
        "model": build_named(ModelSettings, config.get("model") or {}, ComponentKind.FAMILY, "model", "family"),
        "tokenizer": sections["tokenizer"],
        "train": sections["train"],
        "start": sections["start"],
    }
    if "policy" in config:
        return _reinforce_recipe(config, {**common, "data": sections["data"]})
    if misplaced := [key for key in ("rewards", "judge") if key in config]:
        raise RecipeError(f"{misplaced[0]}: only allowed in a recipe with a policy section, for meristem reinforce")
    if "task" in config:
        return _finetune_recipe(config, {**common, "data": sections["data"], "grid": sections["grid"]})
    return _pretrain_recipe(config, {**common, "corpus": sections["corpus"], "dataset": sections["dataset"]})


def _refuse_unknown_sections(config: Mapping[str, Any]) -> None:
    allowed = [*SECTIONS, "model", "objective", "mix", "phases", "task", "heads", "policy", "rewards", "judge"]
    for key in config:
        if key in RENAMED_SECTIONS:
            raise RecipeError(f"{key} is now {RENAMED_SECTIONS[key]}; rename that section")
        if key not in allowed:
            known_names = [name if name != "start" else "from" for name in allowed]
            raise RecipeError(f"{key}: unknown section{did_you_mean(str(key), known_names)}")


def _pretrain_recipe(config: Mapping[str, Any], sections: dict[str, Any]) -> PretrainRecipe:
    if config.get("data"):
        raise RecipeError("data: labelled data need a task section; set text for pretraining with corpus.source")
    if config.get("grid"):
        raise RecipeError("grid: only allowed with a task section, for meristem finetune")
    objective_keys = [key for key in ("objective", "mix", "phases") if key in config]
    if not objective_keys:
        raise RecipeError(f"objective: missing; known: {', '.join(ComponentKind.OBJECTIVE.names())}")
    if len(objective_keys) > 1:
        raise RecipeError(
            f"{' and '.join(objective_keys)}: a recipe has one or the other; each entry of "
            f"{'phases' if 'phases' in objective_keys else 'a mix'} has its own objective"
        )
    corpus = config.get("corpus") or {}
    return PretrainRecipe(
        **sections,
        objective=parse_objectives(config["objective"], "objective") if "objective" in config else (),
        mix=tuple(parse_mix(config["mix"], corpus)) if "mix" in config else (),
        phases=tuple(parse_phases(config["phases"], corpus)) if "phases" in config else (),
        heads=parse_heads(config.get("heads")),
    )


def _finetune_recipe(config: Mapping[str, Any], sections: dict[str, Any]) -> FinetuneRecipe:
    if conflicting := [key for key in ("objective", "mix", "phases") if key in config]:
        raise RecipeError(
            f"task and {conflicting[0]}: a recipe has a task (fine-tuning) or objectives (pretraining), not both"
        )
    return FinetuneRecipe(**sections, task=_parse_task(config["task"]), heads=parse_heads(config.get("heads")))


def _reinforce_recipe(config: Mapping[str, Any], sections: dict[str, Any]) -> ReinforceRecipe:
    if conflicting := [key for key in ("objective", "mix", "phases", "grid") if config.get(key)]:
        raise RecipeError(
            f"policy and {conflicting[0]}: a recipe with a policy cannot have {conflicting[0]}; remove it"
        )
    if sections["data"].augment is not None:
        raise RecipeError("data.augment: only for meristem finetune; a recipe with a policy has no noisy samples")
    if not config.get("rewards"):
        raise RecipeError(f"rewards: missing; known: {', '.join(ComponentKind.REWARD.names())}")
    return ReinforceRecipe(
        **sections,
        task=_parse_task(config["task"]) if config.get("task") else None,
        policy=build_settings(PolicySettings, config["policy"] or {}, "policy"),
        heads=parse_heads(config.get("heads")),
        rewards=parse_rewards(config["rewards"], "rewards"),
        judge=parse_rewards(config.get("judge") or [], "judge"),
    )


def _parse_task(value: Any) -> TaskSettings:
    return build_named(TaskSettings, value, ComponentKind.TASK, "task")
