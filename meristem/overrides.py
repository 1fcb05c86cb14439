"""Settings given on the command line, `train.rate=3e-4`, put into a recipe's mapping; shorthands written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meristem import bounded
from meristem.errors import RecipeError, did_you_mean
from meristem.settings import SECTIONS, find, section_class

PLACES = ("task", "policy", "rewards", "judge", "data", "corpus", "tokenizer", "store", "model", "objective", "mix",
          "train", "from", "grid")  # fmt: skip


def override(mapping: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """The mapping with dotted settings put in."""
    plain = written_out(mapping)
    for key, value in as_mapping(overrides).items():
        _put(plain, key, value)
    return plain


def as_mapping(overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Overrides by their dotted keys, however they were given."""
    return dict(overrides.items() if isinstance(overrides, Mapping) else (_split(item) for item in overrides))


def written_out(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without shorthands: `objective: mlm`, `from: RUN`, lists of one."""
    plain = {key: _copy(value) for key, value in mapping.items()}
    if "from" in plain:
        start = plain.pop("from")
        plain["start"] = {"path": start} if isinstance(start, str) else start
    if isinstance(plain.get("task"), str):
        plain["task"] = {"name": plain["task"]}
    if "objective" in plain:
        plain["objective"] = _objectives(plain["objective"])
    entries = plain.get("mix")
    for entry in entries if isinstance(entries, list) else []:
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
        return key, bounded.yaml_in(text) if text else None
    except ValueError:
        return key, text


def _put(plain: dict[str, Any], key: str, value: Any) -> None:
    """Set one dotted key."""
    section, *path = key.split(".")
    if section not in PLACES:
        raise RecipeError(f"{key}: unknown setting{_elsewhere(section)}")
    if section == "from":
        section, path = "start", path or ["path"]
    if key == "task" and isinstance(value, str):
        before = plain.get("task") or {}
        plain["task"] = before if before.get("name") == value else {"name": value}
    elif not path:
        plain[section] = _objectives(value) if section == "objective" else value
    elif section == "objective":
        _put_objective(plain, key, path, value)
    else:
        plain[section] = {} if plain.get(section) is None else plain[section]
        _put_inside(plain[section], key, path, value, section_class(section).exclusive if section in SECTIONS else ())


def _elsewhere(word: str) -> str:
    """Whether a section has a setting of that name, else the nearest section."""
    inside = [f"{name}.{word}" for name in SECTIONS if word in section_class(name).model_fields]
    return f", did you mean {inside[0]}?" if inside else did_you_mean(word, PLACES)


def _put_inside(node: Any, key: str, path: list[str], value: Any, exclusive: tuple[str, ...]) -> None:
    *steps, last = path
    for step in steps:
        node = node[_index(node, step, key)] if isinstance(node, list) else _entered(_mapping(node, key), step)
    if isinstance(node, list):
        node[_index(node, last, key)] = value
        return
    for other in exclusive if last in exclusive else ():
        _mapping(node, key).pop(other, None)
    _mapping(node, key)[last] = value


def _entered(node: dict[str, Any], step: str) -> Any:
    """What is inside a setting; one that is only switched on or off has nothing yet."""
    if node.get(step) is None or isinstance(node[step], bool):
        node[step] = {}
    return node[step]


def _mapping(node: Any, key: str) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise RecipeError(f"{key}: cannot be set, because the recipe has {node!r} there")
    return node


def _index(node: list[Any], step: str, key: str) -> int:
    named = [number for number, one in enumerate(node) if isinstance(one, dict) and one.get("name") == step]
    if named:
        return named[0]
    if not step.isdigit() or int(step) >= len(node):
        raise RecipeError(f"{key}: expected a number from 0 to {len(node) - 1} in place of {step!r}")
    return int(step)


def _put_objective(plain: dict[str, Any], key: str, path: list[str], value: Any) -> None:
    """`objective.mask_rate` addresses the part that has it; `objective.mlm.mask_rate` says which."""
    parts = [part for part in plain.get("objective") or [] if isinstance(part, dict)]
    if len(path) == 2:
        named = [part for part in parts if part.get("name") == path[0]]
        target = named[0] if named else parts[_index(parts, path[0], key)]
        target[path[1]] = value
        return
    if len(path) != 1:
        raise RecipeError(f"{key}: expected objective.SETTING or objective.NAME.SETTING")
    fields = [find("objectives", str(part.get("name"))).Settings.model_fields for part in parts]
    having = [part for part, known in zip(parts, fields, strict=True) if path[0] in known]
    if not having:
        raise RecipeError(
            f"{key}: unknown setting{did_you_mean(path[0], [name for known in fields for name in known])}"
        )
    if len(having) > 1:
        places = " or ".join(f"objective.{part['name']}.{path[0]}" for part in having)
        raise RecipeError(f"{key}: several parts have it; say {places}")
    having[0][path[0]] = value
