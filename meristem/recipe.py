"""YAML and dotted overrides become one resolved recipe.

A recipe is a mapping of sections. Each section is validated by the settings class that lives beside
what it sets, found through `SECTIONS` or, for models and objectives, through the folder that holds them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from meristem.settings import RecipeError, Settings, build, did_you_mean, find, names

RECIPES = Path(__file__).parent / "recipes"

SECTIONS = {
    "corpus": "corpus.settings:CorpusSettings",
    "tokenizer": "tokenizers.settings:TokenizerSettings",
    "store": "store.settings:StoreSettings",
    "train": "training.settings:TrainSettings",
    "start": "training.settings:StartSettings",
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """One stream of training: what is predicted, on which text, how often."""

    name: str
    objective: tuple[Any, ...]
    corpus: Any
    weight: float = 1.0


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

    def plain(self) -> dict[str, Any]:
        """The resolved recipe as YAML would hold it: every default written out."""
        out: dict[str, Any] = {}
        for section in ("corpus", "tokenizer", "store", "model"):
            out[section] = getattr(self, section).model_dump(mode="json")
        if self.mix:
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
        out["train"] = self.train.model_dump(mode="json")
        out["from"] = self.start.model_dump(mode="json")
        return out

    def sources(self) -> tuple[Source, ...]:
        """The streams of a run; a recipe without `mix` has one."""
        return self.mix or (Source(name="main", objective=self.objective, corpus=self.corpus),)

    def with_name(self, name: str) -> Recipe:
        """The same recipe under another name."""
        return replace(self, name=name)


def section_class(section: str) -> type[Settings]:
    """The settings class of a fixed section."""
    module, _, name = SECTIONS[section].partition(":")
    return getattr(importlib.import_module(f"meristem.{module}"), name)  # type: ignore[no-any-return]  # found by name


def shipped() -> dict[str, Path]:
    """Every recipe in the package, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}


def summary(path: Path) -> str:
    """A recipe's first comment line, without its own file name."""
    first = path.read_text(encoding="utf-8").splitlines()[:1]
    text = first[0].lstrip("# ").strip() if first and first[0].startswith("#") else ""
    return text.split(" — ", 1)[-1]


def read(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """A recipe's name and its mapping, from a file or from the ones shipped."""
    path = Path(recipe)
    if path.suffix not in {".yaml", ".yml"}:
        known = shipped()
        if str(recipe) not in known:
            raise RecipeError(f"no recipe {str(recipe)!r}{did_you_mean(str(recipe), list(known))}")
        path = known[str(recipe)]
    if not path.is_file():
        raise RecipeError(f"no recipe file {path}")
    return path.stem, parse(path)


def parse(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; anything but plain data is refused."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise RecipeError(f"{path}: not readable as YAML: {error}") from None
    if loaded is None:
        loaded = {}
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of sections (corpus, tokenizer, model, objective, train)")
    return loaded


def resolve(name: str, mapping: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str] = ()) -> Recipe:
    """Apply overrides and validate every section; the first thing wrong is named with its place."""
    return _validate(name, _normal(override(mapping, overrides)))


def override(mapping: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """The mapping with dotted settings put in: `train.rate=3e-4`."""
    plain = _normal(mapping)
    pairs = overrides.items() if isinstance(overrides, Mapping) else [_split(item) for item in overrides]
    for key, value in pairs:
        _override(plain, key, value)
    return plain


def _normal(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Shorthands written out: `objective: mlm`, `from: RUN`, lists of one."""
    plain = {key: _copy(value) for key, value in mapping.items()}
    if "from" in plain:
        start = plain.pop("from")
        plain["start"] = {"path": start} if isinstance(start, str) else start
    if "objective" in plain:
        plain["objective"] = _objectives(plain["objective"])
    for entry in plain.get("mix") or []:
        if isinstance(entry, dict) and "objective" in entry:
            entry["objective"] = _objectives(entry["objective"])
    return plain


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list | tuple) else value


def _objectives(value: Any) -> list[Any]:
    parts = value if isinstance(value, list) else [value]
    return [{"name": part} if isinstance(part, str) else part for part in parts]


def _split(item: str) -> tuple[str, Any]:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise RecipeError(f"{item!r}: settings are given as key=value, for instance train.rate=3e-4")
    try:
        return key, yaml.safe_load(text) if text else None
    except yaml.YAMLError:
        return key, text


def _override(plain: dict[str, Any], key: str, value: Any) -> None:
    path = key.split(".")
    known = ["corpus", "tokenizer", "store", "model", "objective", "mix", "train", "from"]
    if path[0] not in known:
        inside = [
            f"{s}.{path[0]}"
            for s in ("train", "corpus", "tokenizer", "store")
            if path[0] in section_class(s).model_fields
        ]
        hint = f", did you mean {inside[0]}?" if inside else did_you_mean(path[0], known)
        raise RecipeError(f"{key}: unknown setting{hint}")
    if path[0] == "from":
        path[0] = "start"
        if len(path) == 1:
            path.append("path")
    if len(path) == 1:
        plain[path[0]] = _objectives(value) if path[0] == "objective" else value
        return
    if path[0] == "objective":
        _override_objective(plain, key, path[1:], value)
        return
    node: Any = plain.setdefault(path[0], {})
    for step in path[1:-1]:
        node = _descend(node, step, key)
    last = path[-1]
    if isinstance(node, list):
        node[_index(node, last, key)] = value
        return
    exclusive = section_class(path[0]).exclusive if path[0] in SECTIONS else ()
    if last in exclusive:
        for other in exclusive:
            node.pop(other, None)
    node[last] = value


def _descend(node: Any, step: str, key: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, step, key)]
    if not isinstance(node, dict):
        raise RecipeError(f"{key}: there is nothing to set inside {step!r}")
    return node.setdefault(step, {})


def _index(node: list[Any], step: str, key: str) -> int:
    if not step.isdigit() or int(step) >= len(node):
        raise RecipeError(f"{key}: expected a number from 0 to {len(node) - 1} in place of {step!r}")
    return int(step)


def _override_objective(plain: dict[str, Any], key: str, path: list[str], value: Any) -> None:
    """`objective.mask_rate` addresses the part that has it; `objective.mlm.mask_rate` says which."""
    parts = plain.get("objective") or []
    named = [p for p in parts if isinstance(p, dict) and p.get("name") == path[0]]
    if len(path) == 2 and (named or path[0].isdigit()):
        target = named[0] if named else parts[_index(parts, path[0], key)]
        target[path[1]] = value
        return
    if len(path) != 1:
        raise RecipeError(f"{key}: expected objective.SETTING or objective.NAME.SETTING")
    having = [
        p
        for p in parts
        if isinstance(p, dict) and path[0] in find("objectives", str(p.get("name"))).Settings.model_fields
    ]
    if not having:
        known = [
            f
            for p in parts
            if isinstance(p, dict)
            for f in find("objectives", str(p.get("name"))).Settings.model_fields
        ]
        raise RecipeError(f"{key}: unknown setting{did_you_mean(path[0], known)}")
    if len(having) > 1:
        places = " or ".join(f"objective.{p['name']}.{path[0]}" for p in having)
        raise RecipeError(f"{key}: several parts have it; say {places}")
    having[0][path[0]] = value


def _validate(name: str, plain: dict[str, Any]) -> Recipe:
    allowed = [*SECTIONS, "model", "objective", "mix"]
    for key in plain:
        if key not in allowed:
            raise RecipeError(
                f"{key}: unknown section{did_you_mean(key, [a if a != 'start' else 'from' for a in allowed])}"
            )
    sections = {s: build(section_class(s), plain.get(s) or {}, "from" if s == "start" else s) for s in SECTIONS}
    model = _named(plain.get("model") or {}, "models", "family", "model")
    if "objective" not in plain and "mix" not in plain:
        raise RecipeError(f"objective: missing; known: {', '.join(names('objectives'))}")
    if "objective" in plain and "mix" in plain:
        raise RecipeError("objective and mix: a recipe has one or the other; in a mix each entry has its objective")
    objective = _parts(plain["objective"], "objective") if "objective" in plain else ()
    mix = tuple(_sources(plain["mix"], plain.get("corpus") or {})) if "mix" in plain else ()
    return Recipe(name=name, model=model, objective=objective, mix=mix, **sections)


def _parts(value: Any, place: str) -> tuple[Any, ...]:
    if not value:
        raise RecipeError(f"{place}: empty; known: {', '.join(names('objectives'))}")
    parts = tuple(_named(part, "objectives", "name", place) for part in value)
    seen = [part.name for part in parts]
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


# ---------------------------------------------------------------- for editors


def schema() -> dict[str, Any]:
    """A JSON schema of recipes, for completion and checking while typing."""
    definitions: dict[str, Any] = {}

    def add(cls: type[Settings]) -> dict[str, Any]:
        made = cls.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(made.pop("$defs", {}))
        definitions[cls.__name__] = made
        return {"$ref": f"#/$defs/{cls.__name__}"}

    families = [add(find("models", name).Settings) for name in names("models")]
    objectives = [add(find("objectives", name).Settings) for name in names("objectives")]
    part = {"anyOf": [{"enum": list(names("objectives"))}, *objectives]}
    objective = {"anyOf": [part, {"type": "array", "items": part, "minItems": 1}]}
    sections: dict[str, Any] = {name: add(section_class(name)) for name in SECTIONS}
    start = sections.pop("start")
    entry = {
        "type": "object",
        "required": ["objective"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "weight": {"type": "number", "exclusiveMinimum": 0},
            "objective": objective,
            "corpus": {"anyOf": [{"type": "string"}, sections["corpus"]]},
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Meristem recipe",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **sections,
            "model": {"anyOf": families},
            "objective": objective,
            "mix": {"type": "array", "items": entry},
            "from": {"anyOf": [{"type": "string"}, start]},
        },
        "$defs": definitions,
    }
