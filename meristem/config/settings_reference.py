"""The page docs/reference/settings.md: every setting with type, default, bounds and help, from the settings classes.

python -m meristem.config.settings_reference
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from meristem.config.name_choice import NameChoice
from meristem.config.recipe_parts import HeadSettings
from meristem.config.registry import ComponentKind, module_names
from meristem.config.sections import section_class
from meristem.config.setting_names import nested_class
from meristem.config.settings import Settings

PAGE = Path("docs/reference/settings.md")
INTRODUCTION = """\
# Settings

Every setting of a recipe, made from the code by `python -m meristem.config.settings_reference`. A setting is written in
a recipe file (`train: {learning_rate: 3e-4}`), on the command line (`train.learning_rate=3e-4`) or in Python
(`meristem.pretrain("bert-mini", {"train.learning_rate": 3e-4})`). `meristem recipes --schema FILE` writes the same as a
JSON schema for editors."""
SECTIONS_OF_RECIPES = {"corpus": "corpus", "tokenizer": "tokenizer", "dataset": "dataset"}
TRAINING_SECTIONS = {"data": "data", "train": "train", "start": "from", "grid": "grid"}
OTHER_SETTINGS = {
    "Zero-shot and few-shot evaluation": ("evaluation.prompt_template:PromptSettings", "meristem evaluate --template"),
    "Generation": ("generation.settings:SamplingSettings", "meristem generate, Model.generate"),
    "Server": ("serving.settings:ServingSettings", "meristem serve, meristem studio"),
    "Federated training": ("trust.federated.settings:FederatedSettings", "meristem federate, as federated.NAME=…"),
    "Federated clients": ("trust.federated.settings:FederatedClientSettings", "clients.yaml, under clients"),
}
"""Settings outside of recipes: title → class, and where they are given."""


def render_page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    for section, title in SECTIONS_OF_RECIPES.items():
        parts += _class_parts(f"## {title}", section_class(section), title)
    parts += _kind_parts(ComponentKind.FAMILY, "family", "model")
    parts += _kind_parts(ComponentKind.OBJECTIVE, "name", "objective")
    for section, title in TRAINING_SECTIONS.items():
        parts += _class_parts(f"## {title}", section_class(section), title)
    parts += _kind_parts(ComponentKind.TASK, "name", "task")
    parts += _class_parts("## policy", section_class("policy"), "policy")
    parts += _kind_parts(ComponentKind.REWARD, "name", "rewards")
    parts += ["A recipe lists rewards under `rewards`, and under `judge` those that only evaluate the policy."]
    parts += _class_parts("## heads", HeadSettings, "heads.NAME")
    for title, (class_path, usage) in OTHER_SETTINGS.items():
        module, _, name = class_path.partition(":")
        cls = getattr(importlib.import_module(f"meristem.{module}"), name)
        parts += [
            f"## {title}",
            f"{cls.__doc__} Given to `{usage.replace(', ', '`, `')}`.",
            _table(cls, cls.model_fields),
        ]
    return "\n\n".join(parts) + "\n"


def _kind_parts(kind: ComponentKind, key: str, section: str) -> Iterator[str]:
    """A section whose class is chosen by name: the settings that each class and each shared base declares."""
    classes = {name: kind.settings_class(name) for name in module_names(kind.package)}
    yield f"## {section}"
    known_names = ", ".join(f"`{name}`" for name in classes)
    yield f"`{section}.{key}` is one of {known_names}. A setting is listed again where a class changes it."
    bases = (base for cls in classes.values() for base in reversed(cls.__mro__) if issubclass(base, Settings))
    for base in dict.fromkeys(bases):
        own = [field for field in vars(base).get("__annotations__", {}) if field in base.model_fields and field != key]
        if base is Settings or not own:
            continue
        users = [name for name, cls in classes.items() if issubclass(cls, base)]
        names = [name for name, cls in classes.items() if cls is base]
        others = [name for name in users if name not in names]
        heading = ", ".join(names or (["all"] if len(users) == len(classes) else users))
        yield f"### {section}: {heading}" + (f" (also {', '.join(others)})" if names and others else "")
        yield _table(base, own)
        yield from _nested_parts(base, own, f"{section}.{heading}" if names else section)


def _class_parts(heading: str, cls: type[Settings], section: str) -> Iterator[str]:
    yield heading
    yield cls.__doc__ or ""
    yield _table(cls, cls.model_fields)
    yield from _nested_parts(cls, list(cls.model_fields), section)


def _nested_parts(cls: type[Settings], fields: Sequence[str], section: str) -> Iterator[str]:
    for field in fields:
        if (nested := nested_class(cls, field)) is not None:
            yield from _class_parts(f"### {section}.{field}", nested, f"{section}.{field}")


def _table(cls: type[Settings], fields: Any) -> str:
    rows = [f"| `{field}` | {' | '.join(_describe(cls, field))} |" for field in fields]
    return "\n".join(["| setting | type | default | bounds | meaning |", "| --- | --- | --- | --- | --- |", *rows])


def _describe(cls: type[Settings], name: str) -> tuple[str, ...]:
    """Type, default, bounds and help of a setting."""
    field = cls.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data={})
    names = [name for rule in field.metadata if isinstance(rule, NameChoice) for name in rule.names()]
    type_name = " | ".join(f"`{name}`" for name in names) or _type_name(field.annotation)
    cells = (type_name, _default_text(default), ", ".join(_bounds(field)), field.description or "")
    return tuple(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells)


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _type_name(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " | ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join("none" if part is NoneType else _type_name(part) for part in get_args(annotation))
    if get_origin(annotation) in (tuple, list):
        return f"list of {_type_name(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return "mapping"
    names = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path", Any: "any"}
    return names.get(annotation, "settings" if isinstance(annotation, type) else str(annotation))


def _default_text(default: Any) -> str:
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, Settings):
        return "its defaults"
    if default is None or isinstance(default, bool):
        return "none" if default is None else str(default).lower()
    if isinstance(default, str):
        return f"`{default!r}`" if not default.strip() or "\n" in default else f"`{default}`"
    return f"`{list(default) if isinstance(default, tuple) else default}`" if default not in ((), {}) else "empty"


def _bounds(field: Any) -> Iterator[str]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "multiple_of": "multiple of", "min_length": "length ≥"}
    for rule in field.metadata:
        for key, sign in signs.items():
            if (value := getattr(rule, key, None)) is not None:
                yield f"{sign} {value:,}"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render_page(), encoding="utf-8")
