"""Frozen settings, errors that speak to the person, and the folders as registry: the ground floor."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from functools import cache
from types import NoneType
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from meristem.dependences import Dependences, Needs
from meristem.errors import RecipeError, did_you_mean

SECTIONS = {
    "corpus": "corpus.settings:CorpusSettings",
    "tokenizer": "tokenizers.settings:TokenizerSettings",
    "store": "store.settings:StoreSettings",
    "data": "labelled.settings:DataSettings",
    "train": "training.settings:TrainSettings",
    "start": "training.settings:StartSettings",
    "grid": "training.settings:GridSettings",
}

WIDEST, DEEPEST = 1 << 24, 1 << 13
"""The largest size of anything in a model, and the most layers."""


class Settings(BaseModel):
    """Frozen settings; the docstring under each field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True,
                              allow_inf_nan=False)

    exclusive: ClassVar[tuple[str, ...]] = ()
    """Fields of which one replaces the others when it is given as an override."""
    known_as: ClassVar[dict[str, str]] = {}
    """Names that other tools have for a setting, and which one it is here."""
    needs: ClassVar[Dependences] = {}
    """Settings that have no effect unless all of these hold; a class adds to those of its bases."""

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        """`none` as people type it is no value, for settings that may have none and are not words."""
        if not isinstance(value, dict):
            return value
        typed = {key for key, one in value.items() if isinstance(one, str) and one.lower() == "none"}
        return {key: None if key in typed and _may_be_none(cls, key) else one for key, one in value.items()}


@cache
def _may_be_none(cls: type[Settings], name: str) -> bool:
    """Whether a field takes no value, and no word that could be meant by "none"."""
    found: list[Any] = [cls.model_fields[name].annotation] if name in cls.model_fields else []
    for one in found:
        found += get_args(one)
    return NoneType in found and str not in found and "none" not in found


def needs_of(cls: type[Settings], name: str) -> tuple[Needs, ...]:
    """What a setting needs to have an effect, as its class and the bases of that declare it."""
    declared = (vars(base).get("needs", {}).get(name, ()) for base in cls.__mro__)
    return tuple(one for some in declared for one in some)


@cache
def names(room: str) -> tuple[str, ...]:
    """What a room holds, by name, without importing any of it."""
    package = importlib.import_module(f"meristem.{room}")
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def find(room: str, name: str) -> Any:
    """The class a file is named after: `find("objectives", "mlm")` is `MLM` in `objectives/mlm.py`."""
    stem = name.replace("-", "_")
    if stem not in names(room):
        raise RecipeError(f"{name!r} is not in {room}/{did_you_mean(name, names(room))}")
    module = importlib.import_module(f"meristem.{room}.{stem}")
    wanted = stem.replace("_", "")
    for key, value in vars(module).items():
        if isinstance(value, type) and key.lower() == wanted and value.__module__ == module.__name__:
            return value
    raise RecipeError(f"meristem/{room}/{stem}.py holds no class named like the file")


def section_class(section: str) -> type[Settings]:
    """The settings class of a fixed section."""
    module, _, name = SECTIONS[section].partition(":")
    return getattr(importlib.import_module(f"meristem.{module}"), name)  # type: ignore[no-any-return]  # found by name


def build(cls: type[Settings], value: Any, place: str) -> Settings:
    """Validate one section; pydantic's findings become sentences."""
    if not isinstance(value, dict):
        raise RecipeError(f"{place}: expected settings, got {value!r}")
    try:
        made = cls.model_validate(value)
    except ValidationError as error:
        raise RecipeError("\n".join(_sentence(cls, item, place) for item in error.errors())) from None
    if place.split(".")[0] in ("model", "tokenizer", "heads"):
        _refuse_huge(made, place)
    return made


def _refuse_huge(settings: Settings, place: str) -> None:
    """Refuse sizes that no machine can hold, before any memory is taken for them."""
    for key, value in settings.model_dump().items():
        most = DEEPEST if key.endswith(("layers", "highways")) else WIDEST
        if (largest := max(whole_numbers(value), default=0)) > most:
            raise RecipeError(f"{place}.{key}: {largest:,} is more than any model has; at most {most:,}")


def whole_numbers(value: Any) -> Iterator[int]:
    """Every whole number in a setting, however it is nested."""
    if isinstance(value, int):
        yield value
    for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from whole_numbers(inside)


def _sentence(cls: type[Settings], item: Any, place: str) -> str:
    where = ".".join([place, *map(str, item["loc"])])
    if item["type"] == "extra_forbidden" and (usual := cls.known_as.get(str(item["loc"][-1]))):
        return f"{where}: unknown setting; use {usual}"
    if item["type"] == "extra_forbidden":
        return f"{where}: unknown setting{did_you_mean(str(item['loc'][-1]), _inside(cls, item['loc'][:-1]))}"
    message = re.sub(r"^Value error, ", "", item["msg"])
    given = item.get("input")
    shown = f" (got {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{where}: {message}{shown}"


def _inside(cls: type[Settings], path: Sequence[str | int]) -> list[str]:
    """The settings known at a place: those of the section, or of the settings inside it."""
    for step in path:
        held = cls.model_fields[str(step)].annotation if str(step) in cls.model_fields else None
        inner = (kind for kind in (held, *get_args(held)) if isinstance(kind, type) and issubclass(kind, Settings))
        cls = next(inner, cls)
    return list(cls.model_fields)
