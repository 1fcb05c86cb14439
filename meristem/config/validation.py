"""Validation of a recipe's sections: errors that name the setting and say what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from meristem.config.errors import RecipeError, did_you_mean
from meristem.config.registry import ComponentKind, module_names
from meristem.config.sections import section_class
from meristem.config.setting_names import inherited_table, nested_class
from meristem.config.settings import Settings, iter_integers

S = TypeVar("S", bound=Settings)
SEARCHED_KINDS = {ComponentKind.FAMILY: "model", ComponentKind.OBJECTIVE: "objective", ComponentKind.TASK: "task"}
"""Sections whose class is found by name, in which a setting without its section is looked for."""
SEARCHED_SECTIONS = ("train", "tokenizer", "start", "corpus", "dataset", "data")
"""Where a setting that was given without its section is looked for, in this order."""

MAX_SIZE, MAX_LAYERS = 1 << 24, 1 << 13
"""Maximum of any size in a model, and of the number of layers."""


def build_settings(cls: type[S], value: Any, section: str) -> S:
    """Validate one section; validation errors become a RecipeError, one line each."""
    if not isinstance(value, dict):
        raise RecipeError(f"{section}: expected a mapping of settings, got {value!r}")
    try:
        settings = cls.model_validate(value)
    except ValidationError as error:
        raise RecipeError("\n".join(_format_error(cls, item, section) for item in error.errors())) from None
    if section.split(".")[0] in ("model", "tokenizer", "heads"):
        _check_sizes(settings, section)
    return settings


def _check_sizes(settings: Settings, section: str) -> None:
    """Refuse sizes that no machine can hold, before any memory is allocated."""
    for key, value in settings.model_dump().items():
        limit = MAX_LAYERS if key.endswith("layers") else MAX_SIZE
        if (largest := max(iter_integers(value), default=0)) > limit:
            raise RecipeError(f"{section}.{key}: {largest:,} is too large; at most {limit:,}")


def _format_error(cls: type[Settings], item: Any, section: str) -> str:
    location = ".".join([section, *map(str, item["loc"])])
    if item["type"] == "extra_forbidden":
        parent = ".".join([section, *map(str, item["loc"][:-1])])
        return unknown_setting(_class_at(cls, item["loc"][:-1]), parent, str(item["loc"][-1]), item.get("input"))
    message = re.sub(r"^Value error, ", "", item["msg"])
    received = item.get("input")
    received_text = f" (got {received!r})" if isinstance(received, str | int | float | bool) else ""
    return f"{location}: {message}{received_text}"


def _class_at(cls: type[Settings], path: Sequence[str | int]) -> type[Settings]:
    """The class of a section, or of the nested settings at a path."""
    for step in path:
        cls = nested_class(cls, str(step)) or cls
    return cls


def unknown_setting(cls: type[Settings], parent: str, name: str, value: Any) -> str:
    """Message for a setting that a section does not have: the line to write instead, or the most similar name."""
    if current_name := inherited_table(cls, "renamed").get(name):
        return f"{parent}.{name} is now {parent}.{current_name}; write {setting_line(parent, current_name, value)}"
    if own_name := inherited_table(cls, "foreign_names").get(name):
        return f"{parent}.{name}: unknown setting; {_foreign_advice(parent, own_name, value)}"
    advice = None if parent.split(".")[0] in ("heads", "serve") else line_for_name(name, value, parent, cls)
    return f"{parent}.{name}: unknown setting" + (f"; {advice}" if advice else did_you_mean(name, [*cls.model_fields]))


def line_for_name(name: str, value: Any, own_section: str = "", own_class: type[Settings] | None = None) -> str | None:
    """Advice for a setting named without its section, in another one, as in other libraries or as before; or None."""
    sections = [(section, section_class(section)) for section in SEARCHED_SECTIONS]
    for own_names in ("model_fields", "foreign_names", "renamed"):
        for section, cls in (*sections, *_named_classes()):
            prefix = "from" if section == "start" else section
            known_there = own_class if prefix == own_section and own_class is not None else cls
            if own_names == "model_fields" and name in known_there.model_fields and name not in ("name", "family"):
                return f"write {setting_line(prefix, name, value)}"
            if own_names != "model_fields" and (own_name := inherited_table(cls, own_names).get(name)):
                if own_name.isidentifier() and own_name not in known_there.model_fields:
                    continue
                return _foreign_advice(prefix, own_name, value)
    return None


def _named_classes() -> Iterator[tuple[str, type[Settings]]]:
    """Section and settings class of every built-in model family, objective and task, and of the policy."""
    for kind, section in SEARCHED_KINDS.items():
        for name in module_names(kind.package):
            yield section, kind.settings_class(name)
    yield "policy", section_class("policy")


def _foreign_advice(section: str, own_name: str, value: Any) -> str:
    """What to write for a name of another library: a setting with the user's value, a fixed line, or a sentence."""
    if " " in own_name:
        return own_name
    return f"write {section}.{own_name}" if "=" in own_name else f"write {setting_line(section, own_name, value)}"


def setting_line(section: str, name: str, value: Any) -> str:
    """A setting as it is written on the command line: `train.learning_rate=3e-4`."""
    if value is None or isinstance(value, dict):
        return f"{section}.{name}=…"
    return f"{section}.{name}={_format_value(value)}"


def _format_value(value: Any) -> str:
    """A value as YAML of one line, numbers in their shorter notation."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_format_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        scientific = re.sub(r"\.?0*e([+-])0*(\d+)", lambda match: f"e{match[1].strip('+')}{match[2]}", f"{value:e}")
        return min((repr(value), scientific), key=len) if float(scientific) == value else repr(value)
    return str(value)
