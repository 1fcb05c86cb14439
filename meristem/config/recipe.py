"""Recipes: a YAML file and dotted overrides, resolved into validated settings.

A recipe is a mapping of sections. Each section is validated by the settings class that is defined next to
the component it configures, found through `SECTIONS` or, for models and objectives, through their package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from meristem.config.errors import RecipeError, did_you_mean
from meristem.config.overrides import apply_overrides, expand_shorthands
from meristem.config.recipe_format import FORMAT_KEY, RECIPE_FORMAT, RENAMED_SECTIONS, migrate_recipe
from meristem.config.registry import ComponentKind
from meristem.config.setting_names import with_hashed_names
from meristem.config.settings import SECTIONS, Settings, section_class
from meristem.config.validation import build_settings
from meristem.utils import untrusted_files

RECIPES_DIR = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True, kw_only=True)
class TrainingSource:
    """One source of training samples: objectives, corpus and sampling weight."""

    name: str
    objective: tuple[Any, ...]
    corpus: Any
    weight: float = 1.0
    kind: ComponentKind = ComponentKind.OBJECTIVE
    """What is trained: objectives, a task or a policy."""


class HeadSettings(Settings):
    """A head that was imported with the weights, and that no objective of this run trains."""

    kind: str
    """The kind of head, as defined by the model family."""
    sizes: dict[str, int] = {}
    """Sizes, such as `classes`."""
    labels: tuple[str, ...] = ()
    """The labels of its outputs, in order."""
    problem: Literal["regression", "single_label_classification", "multi_label_classification"] | None = None
    """Regression, single-label or multi-label classification; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A resolved recipe: the validated settings of all sections."""

    name: str
    corpus: Any
    tokenizer: Any
    dataset: Any
    model: Any
    objective: tuple[Any, ...]
    mix: tuple[TrainingSource, ...]
    train: Any
    start: Any
    task: Any = None
    """The task of a fine-tuning run; then there is no corpus and no objective."""
    data: Any = None
    heads: Mapping[str, HeadSettings] = field(default_factory=dict)
    policy: Any = None
    """Rollout and policy-gradient settings of a run with rewards; `task` is then what it was fine-tuned for before."""
    rewards: tuple[Any, ...] = ()
    judge: tuple[Any, ...] = ()
    """Rewards that are not trained on, used to evaluate the policy at the end."""
    grid: Any = None
    """Grid search of a fine-tuning run; each combination becomes its own run."""

    @property
    def uses_best_checkpoint(self) -> bool:
        """Whether the run ends with its best checkpoint on validation data instead of its last one."""
        keep_best: bool | None = self.train.load_best_at_end
        labelled = self.task is not None or self.policy is not None
        return keep_best if keep_best is not None else labelled or self.train.patience is not None

    def head_labels(self, head: str) -> tuple[str, ...]:
        """The labels of a head, in order; empty for regression or if unknown."""
        if self.task is not None and self.task.name == head:
            return tuple(self.task.model_dump().get("labels", ()))
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

    def _dump(self, dump: Callable[[Settings], dict[str, Any]]) -> dict[str, Any]:
        is_pretraining = self.task is None and self.policy is None
        own_sections = ("corpus", "tokenizer", "dataset") if is_pretraining else ("task", "policy", "data", "tokenizer")
        present_sections = [section for section in (*own_sections, "model") if getattr(self, section) is not None]
        sections: dict[str, Any] = {section: dump(getattr(self, section)) for section in present_sections}
        for section in ("rewards", "judge") if self.policy else ():
            sections[section] = [dump(reward) for reward in getattr(self, section)]
        if not is_pretraining:
            pass
        elif self.mix:
            sections["mix"] = [
                {
                    "name": source.name,
                    "weight": source.weight,
                    "objective": [dump(objective) for objective in source.objective],
                    "corpus": dump(source.corpus),
                }
                for source in self.mix
            ]
        else:
            sections["objective"] = [dump(objective) for objective in self.objective]
        if self.heads:
            sections["heads"] = {name: dump(head) for name, head in self.heads.items()}
        sections["train"] = dump(self.train)
        sections["from"] = dump(self.start)
        return sections

    def sources(self) -> tuple[TrainingSource, ...]:
        """The sources of training samples; a recipe without `mix` has one."""
        if self.policy is not None:
            return (TrainingSource(name="policy", objective=(self.policy,), corpus=None, kind=ComponentKind.POLICY),)
        if self.task is not None:
            return (TrainingSource(name="task", objective=(self.task,), corpus=None, kind=ComponentKind.TASK),)
        return self.mix or (TrainingSource(name="main", objective=self.objective, corpus=self.corpus),)

    def with_name(self, name: str) -> Recipe:
        """The same recipe under another name."""
        return replace(self, name=name)


def builtin_recipes() -> dict[str, Path]:
    """Built-in pretraining recipes by name."""
    return {path.stem: path for path in sorted(RECIPES_DIR.glob("*.yaml"))}


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
    return _validate_recipe(name, expand_shorthands(apply_overrides(mapping, overrides)))


def _validate_recipe(name: str, config: dict[str, Any]) -> Recipe:
    allowed = [*SECTIONS, "model", "objective", "mix", "task", "heads", "policy", "rewards", "judge"]
    for key in config:
        if key not in allowed:
            if key in RENAMED_SECTIONS:
                raise RecipeError(f"{key} is now {RENAMED_SECTIONS[key]}; rename that section")
            known_names = [name if name != "start" else "from" for name in allowed]
            raise RecipeError(f"{key}: unknown section{did_you_mean(str(key), known_names)}")
    section_names = {section: "from" if section == "start" else section for section in SECTIONS}
    sections: dict[str, Any] = {
        key_name: build_settings(section_class(key_name), config.get(key_name) or {}, section_name)
        for key_name, section_name in section_names.items()
    }
    model = _build_named(config.get("model") or {}, ComponentKind.FAMILY, "family", "model")
    if "policy" in config:
        return _build_policy_recipe(name, config, model, sections)
    if misplaced := [key for key in ("rewards", "judge") if key in config]:
        raise RecipeError(f"{misplaced[0]}: only allowed in a recipe with a policy section, for meristem reinforce")
    if "task" in config:
        return _build_task_recipe(name, config, model, sections)
    if config.get("data"):
        raise RecipeError("data: labelled data need a task section; set text for pretraining with corpus.source")
    if config.get("grid"):
        raise RecipeError("grid: only allowed with a task section, for meristem finetune")
    for section in ("data", "grid"):
        sections.pop(section)
    if "objective" not in config and "mix" not in config:
        raise RecipeError(f"objective: missing; known: {', '.join(ComponentKind.OBJECTIVE.names())}")
    if "objective" in config and "mix" in config:
        raise RecipeError("objective and mix: a recipe has one or the other; each entry of a mix has its own objective")
    objective = _parse_objectives(config["objective"], "objective") if "objective" in config else ()
    mix = tuple(_parse_mix(config["mix"], config.get("corpus") or {})) if "mix" in config else ()
    return Recipe(
        name=name, model=model, objective=objective, mix=mix, heads=_parse_heads(config.get("heads")), **sections
    )


def _build_task_recipe(name: str, config: dict[str, Any], model: Settings, sections: dict[str, Any]) -> Recipe:
    """A fine-tuning recipe: a task and labelled data instead of objectives and a corpus."""
    if conflicting := [key for key in ("objective", "mix") if key in config]:
        raise RecipeError(
            f"task and {conflicting[0]}: a recipe has a task (fine-tuning) or objectives (pretraining), not both"
        )
    task = _build_named(config["task"], ComponentKind.TASK, "name", "task")
    return Recipe(
        name=name, model=model, task=task, objective=(), mix=(), heads=_parse_heads(config.get("heads")), **sections
    )


def _build_policy_recipe(name: str, config: dict[str, Any], model: Settings, sections: dict[str, Any]) -> Recipe:
    """A recipe with rewards; a task section is the one the model was fine-tuned for before."""
    if conflicting := [key for key in ("objective", "mix", "grid") if config.get(key)]:
        raise RecipeError(
            f"policy and {conflicting[0]}: a recipe with a policy cannot have {conflicting[0]}; remove it"
        )
    if not config.get("rewards"):
        raise RecipeError(f"rewards: missing; known: {', '.join(ComponentKind.REWARD.names())}")
    return Recipe(
        name=name,
        model=model,
        task=_build_named(config["task"], ComponentKind.TASK, "name", "task") if config.get("task") else None,
        policy=_build_named({"name": "policy", **(config["policy"] or {})}, ComponentKind.POLICY, "name", "policy"),
        objective=(),
        mix=(),
        heads=_parse_heads(config.get("heads")),
        rewards=parse_rewards(config["rewards"], "rewards"),
        judge=parse_rewards(config.get("judge") or [], "judge"),
        **{**sections, "grid": None},
    )


def parse_rewards(entries: Any, section: str) -> tuple[Any, ...]:
    """Settings of a list of rewards, each given by name or as a mapping."""
    if not isinstance(entries, list):
        raise RecipeError(f"{section}: expected a list of rewards, each {{name, weight, …}}")
    configs = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    return tuple(
        _build_named(entry, ComponentKind.REWARD, "name", f"{section}.{index}") for index, entry in enumerate(configs)
    )


def _parse_heads(value: Any) -> dict[str, HeadSettings]:
    if not isinstance(value or {}, dict):
        raise RecipeError("heads: expected a mapping from head names to their settings (kind, …)")
    return {name: build_settings(HeadSettings, head, f"heads.{name}") for name, head in (value or {}).items()}  # type: ignore[misc]  # it builds what it is given


def _parse_objectives(value: Any, section: str) -> tuple[Any, ...]:
    if not value:
        raise RecipeError(f"{section}: empty; known: {', '.join(ComponentKind.OBJECTIVE.names())}")
    parts = tuple(_build_named(part, ComponentKind.OBJECTIVE, "name", section) for part in value)
    objective_names = [str(part["name"]) for part in value]
    if len(set(objective_names)) < len(objective_names):
        raise RecipeError(f"{section}: {', '.join(objective_names)}: an objective may occur only once in a sum")
    return parts


def _parse_mix(entries: Any, corpus: Mapping[str, Any]) -> Iterator[TrainingSource]:
    if not isinstance(entries, list) or not entries:
        raise RecipeError("mix: expected a list of {weight, objective, corpus}")
    used_names: set[str] = set()
    known_keys = [item.name for item in fields(TrainingSource)]
    for index, entry in enumerate(entries):
        section = f"mix.{index}"
        if not isinstance(entry, dict) or "objective" not in entry:
            raise RecipeError(f"{section}: expected {{weight, objective, corpus}}")
        for key in entry:
            if key not in known_keys:
                raise RecipeError(f"{section}.{key}: unknown setting{did_you_mean(key, known_keys)}")
        objectives = _parse_objectives(entry["objective"], f"{section}.objective")
        weight = entry.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise RecipeError(f"{section}.weight: {weight!r} is not a positive number")
        name = str(entry.get("name") or "+".join(objective.name for objective in objectives))
        name = name if name not in used_names else f"{name}-{index}"
        used_names.add(name)
        own_corpus = entry.get("corpus")
        own_corpus = {"source": own_corpus} if isinstance(own_corpus, str) else own_corpus
        merged = {**corpus, **own_corpus} if own_corpus else corpus
        yield TrainingSource(
            name=name,
            objective=objectives,
            weight=float(weight),
            corpus=build_settings(section_class("corpus"), merged, f"{section}.corpus"),
        )


def _build_named(value: Any, kind: ComponentKind, key: str, section: str) -> Settings:
    if not isinstance(value, dict) or not value.get(key):
        raise RecipeError(f"{section}.{key}: missing; known: {', '.join(kind.names())}")
    if (name := str(value[key])) not in kind:
        raise RecipeError(f"{section}.{key}: no {name!r}{did_you_mean(name, kind.names())}")
    return build_settings(kind.settings_class(name), value, section)
