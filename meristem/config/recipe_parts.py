"""Parts of a recipe whose class is chosen by name: model, objectives, tasks, rewards, the sources of a mix, heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from meristem.config.errors import MeristemError, RecipeError, did_you_mean
from meristem.config.registry import ComponentKind
from meristem.config.settings import Settings
from meristem.config.validation import build_settings
from meristem.corpus.settings import CorpusSettings
from meristem.objectives.settings import ObjectiveSettings
from meristem.reinforce.settings import RewardSettings

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class TrainingSource:
    """One source of a pretraining run: a corpus, the objectives trained on it, and how often it is sampled."""

    name: str
    objective: tuple[ObjectiveSettings, ...]
    corpus: CorpusSettings
    weight: float = 1.0


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


def build_named(base: type[S], value: Any, kind: ComponentKind, section: str, key: str = "name") -> S:
    """Validated settings of the class that `value[key]` names."""
    if not isinstance(value, dict) or not value.get(key):
        raise RecipeError(f"{section}.{key}: missing; known: {', '.join(kind.names())}")
    if (name := str(value[key])) not in kind:
        raise RecipeError(f"{section}.{key}: no {name!r}{did_you_mean(name, kind.names())}")
    cls = kind.settings_class(name)
    if not issubclass(cls, base):
        raise MeristemError(f"{kind.origin(name)}: its Settings must be a subclass of {base.__name__}")
    return build_settings(cls, value, section)


def parse_rewards(entries: Any, section: str) -> tuple[RewardSettings, ...]:
    """Settings of a list of rewards, each given by name or as a mapping."""
    if not isinstance(entries, list):
        raise RecipeError(f"{section}: expected a list of rewards, each {{name, weight, …}}")
    configs = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    return tuple(
        build_named(RewardSettings, entry, ComponentKind.REWARD, f"{section}.{index}")
        for index, entry in enumerate(configs)
    )


def parse_heads(value: Any) -> dict[str, HeadSettings]:
    """The heads of a recipe by name."""
    if not isinstance(value or {}, dict):
        raise RecipeError("heads: expected a mapping from head names to their settings (kind, …)")
    return {name: build_settings(HeadSettings, head, f"heads.{name}") for name, head in (value or {}).items()}


def parse_objectives(value: Any, section: str) -> tuple[ObjectiveSettings, ...]:
    """Settings of one objective or of a sum of several."""
    if not value:
        raise RecipeError(f"{section}: empty; known: {', '.join(ComponentKind.OBJECTIVE.names())}")
    parts = tuple(build_named(ObjectiveSettings, part, ComponentKind.OBJECTIVE, section) for part in value)
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise RecipeError(f"{section}: {', '.join(names)}: an objective may occur only once in a sum")
    return parts


def parse_mix(entries: Any, corpus: Mapping[str, Any]) -> Iterator[TrainingSource]:
    """The sources of a mix; the recipe's own corpus section has the defaults of theirs."""
    return _parse_sources("mix", entries, corpus, "weight", ("name", "weight", "objective", "corpus"))


def parse_phases(entries: Any, corpus: Mapping[str, Any]) -> Iterator[TrainingSource]:
    """The sources of a recipe with phases, with their shares as weights; all read the recipe's corpus."""
    return _parse_sources("phases", entries, corpus, "share", ("name", "share", "objective"))


def _parse_sources(
    kind: str, entries: Any, corpus: Mapping[str, Any], weight_key: str, known_keys: Sequence[str]
) -> Iterator[TrainingSource]:
    expected = f"{{{', '.join(key for key in known_keys if key != 'name')}}}"
    if not isinstance(entries, list) or not entries:
        raise RecipeError(f"{kind}: expected a list of {expected}")
    used_names: set[str] = set()
    for index, entry in enumerate(entries):
        section = f"{kind}.{index}"
        if not isinstance(entry, dict) or "objective" not in entry:
            raise RecipeError(f"{section}: expected {expected}")
        for key in entry:
            if key not in known_keys:
                raise RecipeError(f"{section}.{key}: unknown setting{did_you_mean(key, known_keys)}")
        objectives = parse_objectives(entry["objective"], f"{section}.objective")
        weight = entry.get(weight_key, 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise RecipeError(f"{section}.{weight_key}: {weight!r} is not a positive number")
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
            corpus=build_settings(CorpusSettings, merged, f"{section}.corpus"),
        )
