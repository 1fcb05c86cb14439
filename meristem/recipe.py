"""YAML and dotted overrides become one resolved recipe.

A recipe is a mapping of sections. Each section is validated by the settings class that lives beside
what it sets, found through `SECTIONS` or, for models and objectives, through the folder that holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from meristem import bounded
from meristem.errors import RecipeError, did_you_mean
from meristem.overrides import override, written_out
from meristem.settings import SECTIONS, Settings, build, find, names, section_class

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One stream of training: what is predicted, on which text, how often."""

    name: str
    objective: tuple[Any, ...]
    corpus: Any
    weight: float = 1.0
    room: str = "objectives"
    """Where its parts are found: objectives, tasks, or reinforce."""


class HeadSettings(Settings):
    """A head that came along with weights, and that no objective of this run trains."""

    kind: str
    """Its shape, as the family makes it."""
    sizes: dict[str, int] = {}
    """How large, such as `classes`."""
    labels: tuple[str, ...] = ()
    """What its scores stand for, in order."""
    problem: Literal["regression", "single_label_classification", "multi_label_classification"] | None = None
    """Whether a text has a number, one of the labels or several of them; none where it was never said."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run, resolved: every section validated by the class beside what it sets."""

    name: str
    corpus: Any
    tokenizer: Any
    store: Any
    model: Any
    objective: tuple[Any, ...]
    mix: tuple[Source, ...]
    train: Any
    start: Any
    task: Any = None
    """What is learned from labelled data, where the run is a fine-tuning; then there is no corpus and no objective."""
    data: Any = None
    heads: Mapping[str, HeadSettings] = field(default_factory=dict)
    policy: Any = None
    """How texts are written for rewards, where a run is reinforced; its task is then the one it was taught before."""
    rewards: tuple[Any, ...] = ()
    judge: tuple[Any, ...] = ()
    """Rewards that the run is not trained by, and is judged by at its end."""
    grid: Any = None
    """Settings to try one after the other, where a task is learned with several; each becomes a run of its own."""

    @property
    def ends_best(self) -> bool:
        """Whether a run is its best checkpoint on validation, and not its last one."""
        said: bool | None = self.train.keep_best
        labelled = self.task is not None or self.policy is not None
        return said if said is not None else labelled or self.train.patience is not None

    def labels(self, head: str) -> tuple[str, ...]:
        """What the scores of a head stand for, in order; nothing where it is one number or was never said."""
        if self.task is not None and self.task.name == head:
            return tuple(self.task.model_dump().get("labels", ()))
        found = self.heads[head].labels if head in self.heads else ()
        return found if len(found) > 1 else ()

    def plain(self) -> dict[str, Any]:
        """The resolved recipe as YAML would hold it: every default written out."""
        text = self.task is None and self.policy is None
        own = ("corpus", "tokenizer", "store") if text else ("task", "policy", "data", "tokenizer")
        there = [section for section in (*own, "model") if getattr(self, section) is not None]
        out: dict[str, Any] = {section: getattr(self, section).model_dump(mode="json") for section in there}
        for section in ("rewards", "judge") if self.policy else ():
            out[section] = [one.model_dump(mode="json") for one in getattr(self, section)]
        if not text:
            pass
        elif self.mix:
            out["mix"] = [
                {
                    "name": s.name,
                    "weight": s.weight,
                    "objective": [o.model_dump(mode="json") for o in s.objective],
                    "corpus": s.corpus.model_dump(mode="json"),
                }
                for s in self.mix
            ]
        else:
            out["objective"] = [o.model_dump(mode="json") for o in self.objective]
        if self.heads:
            out["heads"] = {name: head.model_dump(mode="json") for name, head in self.heads.items()}
        out["train"] = self.train.model_dump(mode="json")
        out["from"] = self.start.model_dump(mode="json")
        return out

    def sources(self) -> tuple[Source, ...]:
        """The streams of a run; a recipe without `mix` has one."""
        if self.policy is not None:
            return (Source(name="policy", objective=(self.policy,), corpus=None, room="reinforce"),)
        if self.task is not None:
            return (Source(name="task", objective=(self.task,), corpus=None, room="tasks"),)
        return self.mix or (Source(name="main", objective=self.objective, corpus=self.corpus),)

    def with_name(self, name: str) -> Recipe:
        """The same recipe under another name."""
        return replace(self, name=name)


def shipped() -> dict[str, Path]:
    """Every recipe in the package, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}


def shipped_tasks() -> dict[str, Path]:
    """Every recipe for a task in the package, by name."""
    return {path.stem: path for path in sorted((RECIPES / "tasks").glob("*.yaml"))}


def shipped_rewards() -> dict[str, Path]:
    """Every recipe for rewards in the package, by name."""
    return {path.stem: path for path in sorted((RECIPES / "rewards").glob("*.yaml"))}


def summary(path: Path) -> str:
    """A recipe's first comment line, without its own file name."""
    first = path.read_text(encoding="utf-8").splitlines()[:1]
    text = first[0].lstrip("# ").strip() if first and first[0].startswith("#") else ""
    return text.split(" — ", 1)[-1]


def read(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """A recipe's name and its mapping, from a file, from the ones shipped, or from a run that is gone on from."""
    path = Path(recipe)
    if (path / "recipe.yaml").is_file():
        return f"{path.resolve().name}-on", {**parse(path / "recipe.yaml"), "from": str(path)}
    if path.suffix not in {".yaml", ".yml"}:
        known = {**shipped(), **shipped_tasks(), **shipped_rewards()}
        if str(recipe) not in known:
            raise RecipeError(f"no recipe {str(recipe)!r}{did_you_mean(str(recipe), list(known))}")
        path = known[str(recipe)]
    if not path.is_file():
        raise RecipeError(f"no recipe file {path}")
    return path.stem, parse(path)


def parse(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; anything but plain data is refused."""
    loaded = bounded.read_yaml(path)
    if loaded is None:
        loaded = {}
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of sections (corpus, tokenizer, model, objective, train)")
    return loaded


def resolve(name: str, mapping: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str] = ()) -> Recipe:
    """Apply overrides and validate every section; the first thing wrong is named with its place."""
    return _validate(name, written_out(override(mapping, overrides)))


def _validate(name: str, plain: dict[str, Any]) -> Recipe:
    allowed = [*SECTIONS, "model", "objective", "mix", "task", "heads", "policy", "rewards", "judge"]
    for key in plain:
        if key not in allowed:
            shown = [name if name != "start" else "from" for name in allowed]
            raise RecipeError(f"{key}: unknown section{did_you_mean(str(key), shown)}")
    places = {section: "from" if section == "start" else section for section in SECTIONS}
    sections: dict[str, Any] = {s: build(section_class(s), plain.get(s) or {}, at) for s, at in places.items()}
    model = _named(plain.get("model") or {}, "models", "family", "model")
    if "policy" in plain:
        return _policy(name, plain, model, sections)
    if other := [key for key in ("rewards", "judge") if key in plain]:
        raise RecipeError(f"{other[0]}: rewards belong to a recipe with a policy: meristem reinforce")
    if "task" in plain:
        return _task(name, plain, model, sections)
    if plain.get("data"):
        raise RecipeError("data: labelled data belong to a task; text to pretrain on is corpus.source")
    if plain.get("grid"):
        raise RecipeError("grid: belongs to a task: meristem finetune tries its settings one after the other")
    for section in ("data", "grid"):
        sections.pop(section)
    if "objective" not in plain and "mix" not in plain:
        raise RecipeError(f"objective: missing; known: {', '.join(names('objectives'))}")
    if "objective" in plain and "mix" in plain:
        raise RecipeError("objective and mix: a recipe has one or the other; in a mix each entry has its objective")
    objective = _parts(plain["objective"], "objective") if "objective" in plain else ()
    mix = tuple(_sources(plain["mix"], plain.get("corpus") or {})) if "mix" in plain else ()
    return Recipe(name=name, model=model, objective=objective, mix=mix, heads=_heads(plain.get("heads")), **sections)


def _task(name: str, plain: dict[str, Any], model: Settings, sections: dict[str, Any]) -> Recipe:
    """A fine-tuning: a task and its data instead of objectives and their text."""
    if other := [key for key in ("objective", "mix") if key in plain]:
        raise RecipeError(f"task and {other[0]}: a run is fine-tuned for a task or pretrained with objectives")
    task = _named(plain["task"], "tasks", "name", "task")
    return Recipe(name=name, model=model, task=task, objective=(), mix=(), heads=_heads(plain.get("heads")), **sections)


def _policy(name: str, plain: dict[str, Any], model: Settings, sections: dict[str, Any]) -> Recipe:
    """A run that learns from rewards; what it was taught before comes along."""
    if other := [key for key in ("objective", "mix", "grid") if plain.get(key)]:
        raise RecipeError(f"policy and {other[0]}: what a model learned before its rewards is its run's own affair")
    if not plain.get("rewards"):
        raise RecipeError(f"rewards: missing; known: {', '.join(names('reinforce.rewards'))}")
    return Recipe(
        name=name,
        model=model,
        task=_named(plain["task"], "tasks", "name", "task") if plain.get("task") else None,
        policy=_named({"name": "policy", **(plain["policy"] or {})}, "reinforce", "name", "policy"),
        objective=(),
        mix=(),
        heads=_heads(plain.get("heads")),
        rewards=rewards(plain["rewards"], "rewards"),
        judge=rewards(plain.get("judge") or [], "judge"),
        **{**sections, "grid": None},
    )


def rewards(entries: Any, place: str) -> tuple[Any, ...]:
    """A list of rewards, each by its name alone or with settings."""
    if not isinstance(entries, list):
        raise RecipeError(f"{place}: expected a list of rewards, each {{name, weight, …}}")
    each = [{"name": one} if isinstance(one, str) else one for one in entries]
    return tuple(_named(one, "reinforce.rewards", "name", f"{place}.{n}") for n, one in enumerate(each))


def _heads(value: Any) -> dict[str, HeadSettings]:
    if not isinstance(value or {}, dict):
        raise RecipeError("heads: expected names of heads, each with its kind")
    return {name: build(HeadSettings, head, f"heads.{name}") for name, head in (value or {}).items()}  # type: ignore[misc]  # it builds what it is given


def _parts(value: Any, place: str) -> tuple[Any, ...]:
    if not value:
        raise RecipeError(f"{place}: empty; known: {', '.join(names('objectives'))}")
    parts = tuple(_named(part, "objectives", "name", place) for part in value)
    seen = [str(part["name"]) for part in value]
    if len(set(seen)) < len(seen):
        raise RecipeError(f"{place}: {', '.join(seen)}: each objective may stand once in a sum")
    return parts


def _sources(entries: Any, corpus: Mapping[str, Any]) -> Iterator[Source]:
    if not isinstance(entries, list) or not entries:
        raise RecipeError("mix: expected a list of {weight, objective, corpus}")
    used: set[str] = set()
    known = [f.name for f in fields(Source)]
    for number, entry in enumerate(entries):
        place = f"mix.{number}"
        if not isinstance(entry, dict) or "objective" not in entry:
            raise RecipeError(f"{place}: expected {{weight, objective, corpus}}")
        for key in entry:
            if key not in known:
                raise RecipeError(f"{place}.{key}: unknown setting{did_you_mean(key, known)}")
        parts = _parts(entry["objective"], f"{place}.objective")
        weight = entry.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise RecipeError(f"{place}.weight: {weight!r} is not a positive number")
        name = str(entry.get("name") or "+".join(part.name for part in parts))
        name = name if name not in used else f"{name}-{number}"
        used.add(name)
        own = entry.get("corpus")
        own = {"source": own} if isinstance(own, str) else own
        merged = {**corpus, **own} if own else corpus
        yield Source(
            name=name,
            objective=parts,
            weight=float(weight),
            corpus=build(section_class("corpus"), merged, f"{place}.corpus"),
        )


def _named(value: Any, room: str, key: str, place: str) -> Settings:
    if not isinstance(value, dict) or not value.get(key):
        raise RecipeError(f"{place}.{key}: missing; known: {', '.join(names(room))}")
    try:
        found = find(room, str(value[key]))
    except RecipeError:
        raise RecipeError(f"{place}.{key}: no {value[key]!r}{did_you_mean(str(value[key]), names(room))}") from None
    return build(found.Settings, value, place)
