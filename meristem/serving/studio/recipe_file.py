"""A run's recipe.yaml as plain data, kept in memory until the file changes.

Parsing 500 recipes takes 7 s with PyYAML's own scanner and 0.9 s with libyaml, whose C code however follows any
nesting down; so libyaml reads only what is flat and has no anchors, which is how training writes its recipes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from meristem import bounded
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.serving.studio.metrics_tail import KEPT, stamp

BRACKETS = 64
"""As many opening brackets in the whole text, so that nothing can be nested deeper."""
DEEP = re.compile(r"^[ \-?:\t]{48}", re.M)
"""Indentation and indicators of nested blocks at the beginning of a line."""
ANCHORS = re.compile(r"(?:^|[\s\[{,:-])[&*!]", re.M)
BASE_60 = re.compile(r"[0-9]:[0-9]")
"""YAML 1.1 would read 1:30 as a number, in time that grows with the square of its length."""


def recipe_of(run: Run) -> dict[str, Any]:
    """The recipe; empty where it cannot be read."""
    return _recipe(run.recipe_path, stamp(run.recipe_path))


@lru_cache(maxsize=KEPT)
def _recipe(path: Path, _stamp: tuple[int, int, int]) -> dict[str, Any]:
    if path.is_symlink():
        return {}
    try:
        found = _parsed(bounded.text(path, bounded.RECIPE.size))
    except (MeristemError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _parsed(text: str) -> Any:
    odd = DEEP.search(text) or ANCHORS.search(text) or BASE_60.search(text)
    flat = text.count("[") + text.count("{") <= BRACKETS and not odd
    if flat and yaml.__with_libyaml__:
        try:
            return yaml.CSafeLoader(text).get_single_data()
        except (yaml.YAMLError, OverflowError, AttributeError):
            return {}
    return bounded.yaml_in(text)
