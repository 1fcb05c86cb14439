"""Frozen settings, errors that speak to the person, and the folders as registry: the ground floor."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

SECTIONS = {
    "corpus": "corpus.settings:CorpusSettings",
    "tokenizer": "tokenizers.settings:TokenizerSettings",
    "store": "store.settings:StoreSettings",
    "data": "labelled.settings:DataSettings",
    "train": "training.settings:TrainSettings",
    "start": "training.settings:StartSettings",
    "grid": "training.settings:GridSettings",
}


class MeristemError(Exception):
    """Something a person can mend: what, where, and what to do about it."""


class RecipeError(MeristemError):
    """A recipe that cannot run as written."""


class Settings(BaseModel):
    """Frozen settings; the docstring under each field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    exclusive: ClassVar[tuple[str, ...]] = ()
    """Fields of which one replaces the others when it is given as an override."""


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


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of an error message: the nearest right name, or all of them."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"


def build(cls: type[Settings], value: Any, place: str) -> Settings:
    """Validate one section; pydantic's findings become sentences."""
    if not isinstance(value, dict):
        raise RecipeError(f"{place}: expected settings, got {value!r}")
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        raise RecipeError("\n".join(_sentence(cls, item, place) for item in error.errors())) from None


def _sentence(cls: type[Settings], item: Any, place: str) -> str:
    where = ".".join([place, *map(str, item["loc"])])
    if item["type"] == "extra_forbidden":
        return f"{where}: unknown setting{did_you_mean(str(item['loc'][-1]), list(cls.model_fields))}"
    message = re.sub(r"^Value error, ", "", item["msg"])
    given = item.get("input")
    shown = f" (got {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{where}: {message}{shown}"
