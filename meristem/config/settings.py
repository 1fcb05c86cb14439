"""Base class of all settings, validation with readable errors, and lookup of classes by file name (the registry)."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from functools import cache
from types import NoneType
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from meristem.config.conditions import AnyCondition, SettingConditions
from meristem.config.errors import RecipeError, did_you_mean
from meristem.config.setting_names import inherited_table, nested_class

CLASS_SUFFIXES = ("objective", "task", "reward", "view", "tokenizer", "sample", "modeltype", "format")
"""Class names may end in one of these after the name of their file: `CaptionTask` in `tasks/caption.py`."""

SECTIONS = {
    "corpus": "corpus.settings:CorpusSettings",
    "tokenizer": "tokenizers.settings:TokenizerSettings",
    "dataset": "dataset.settings:DatasetSettings",
    "data": "labelled.settings:DataSettings",
    "train": "training.settings:TrainSettings",
    "start": "training.settings:StartSettings",
    "grid": "training.settings:GridSettings",
}
SEARCHED_SECTIONS = ("train", "tokenizer", "start", "corpus", "dataset", "data")
"""Where a setting that was given without its section is looked for, in this order."""

MAX_SIZE, MAX_LAYERS = 1 << 24, 1 << 13
"""Maximum of any size in a model, and of the number of layers."""


class Settings(BaseModel):
    """Frozen pydantic settings; the docstring under each field is its help text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    exclusive: ClassVar[tuple[str, ...]] = ()
    """Mutually exclusive fields: an override of one removes the others."""
    renamed: ClassVar[dict[str, str]] = {}
    """Earlier name → current name; a class adds to those of its bases. What is hashed keeps the earlier name."""
    foreign_names: ClassVar[dict[str, str]] = {}
    """Name in other libraries → setting here, `setting=value`, or a sentence; a class adds to those of its bases."""
    needs: ClassVar[SettingConditions] = {}
    """Conditions under which settings have an effect; a class adds to those of its bases."""

    @model_validator(mode="before")
    @classmethod
    def _parse_none(cls, value: Any) -> Any:
        """Parse the string `none` as None, for optional settings that are not strings."""
        if not isinstance(value, dict):
            return value
        none_keys = {key for key, item in value.items() if isinstance(item, str) and item.lower() == "none"}
        return {key: None if key in none_keys and _allows_none(cls, key) else item for key, item in value.items()}


@cache
def _allows_none(cls: type[Settings], name: str) -> bool:
    """Whether a field accepts None, and no string that could be "none"."""
    annotations: list[Any] = [cls.model_fields[name].annotation] if name in cls.model_fields else []
    for annotation in annotations:
        annotations += get_args(annotation)
    return NoneType in annotations and str not in annotations and "none" not in annotations


def conditions_of(cls: type[Settings], name: str) -> tuple[AnyCondition, ...]:
    """The conditions of a setting, declared by its class and the bases."""
    condition_groups = (vars(base).get("needs", {}).get(name, ()) for base in cls.__mro__)
    return tuple(condition for conditions in condition_groups for condition in conditions)


@cache
def module_names(package: str) -> tuple[str, ...]:
    """The public modules of a package, such as "objectives", without importing them."""
    imported = importlib.import_module(f"meristem.{package}")
    return tuple(
        sorted(m.name for m in pkgutil.iter_modules(imported.__path__) if not (m.ispkg or m.name.startswith("_")))
    )


def find_class(package: str, name: str) -> Any:
    """The class named after its file: `find_class("objectives", "mlm")` is `MLMObjective` in `objectives/mlm.py`."""
    stem = name.replace("-", "_")
    if stem not in module_names(package):
        raise RecipeError(f"unknown name {name!r} in {package}/{did_you_mean(name, module_names(package))}")
    module = importlib.import_module(f"meristem.{package}.{stem}")
    class_names = {stem.replace("_", "") + suffix for suffix in ("", *CLASS_SUFFIXES)}
    for key, value in vars(module).items():
        if isinstance(value, type) and key.lower() in class_names and value.__module__ == module.__name__:
            return value
    raise RecipeError(f"meristem/{package}/{stem}.py contains no class named after the file")


def section_class(section: str) -> type[Settings]:
    """The settings class of a section in `SECTIONS`."""
    module, _, name = SECTIONS[section].partition(":")
    return getattr(importlib.import_module(f"meristem.{module}"), name)  # type: ignore[no-any-return]  # found by name


def build_settings(cls: type[Settings], value: Any, section: str) -> Settings:
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


def iter_integers(value: Any) -> Iterator[int]:
    """All integers in a possibly nested value."""
    if isinstance(value, int):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from iter_integers(item)


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
        for section, cls in (*sections, *_found_by_name()):
            prefix = "from" if section == "start" else section
            known_there = own_class if prefix == own_section and own_class is not None else cls
            if own_names == "model_fields" and name in known_there.model_fields and name not in ("name", "family"):
                return f"write {setting_line(prefix, name, value)}"
            if own_names != "model_fields" and (own_name := inherited_table(cls, own_names).get(name)):
                if own_name.isidentifier() and own_name not in known_there.model_fields:
                    continue
                return _foreign_advice(prefix, own_name, value)
    return None


def _found_by_name() -> Iterator[tuple[str, type[Settings]]]:
    """Section and settings class of every model family, objective and task, and of the policy."""
    for package, section in (("models", "model"), ("objectives", "objective"), ("tasks", "task")):
        for name in module_names(package):
            yield section, find_class(package, name).Settings
    yield "policy", find_class("reinforce", "policy").Settings


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
