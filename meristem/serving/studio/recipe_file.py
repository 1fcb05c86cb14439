"""A run's recipe.yaml as plain data, cached until the file changes.

Parsing 500 recipes takes 7 s with PyYAML's own scanner and 0.9 s with libyaml, whose C code however recurses without
a limit; so libyaml parses only flat files without anchors, which is how training writes its recipes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe_format import migrate_recipe
from meristem.serving.studio.metrics_tail import cached_by_file
from meristem.utils import untrusted_files

MAX_BRACKETS = 64
"""Maximum number of opening brackets in the whole text, which also bounds the nesting."""
DEEP_NESTING = re.compile(r"^[ \-?:\t]{48}", re.M)
"""Indentation and indicators of nested blocks at the beginning of a line."""
ANCHORS = re.compile(r"(?:^|[\s\[{,:-])[&*!]", re.M)
BASE_60 = re.compile(r"[0-9]:[0-9]")
"""YAML 1.1 would parse 1:30 as a number, in time quadratic in its length."""


def read_run_recipe(run: RunFolder) -> dict[str, Any]:
    """The recipe; empty if it cannot be read."""
    return _read_recipe(run.recipe_path)


@cached_by_file
def _read_recipe(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        return {}
    try:
        recipe = _parse_yaml(untrusted_files.read_text(path, untrusted_files.RECIPE_LIMITS.max_bytes))
        return migrate_recipe(recipe, path) if isinstance(recipe, dict) else {}
    except (MeristemError, ValueError):
        return {}


def _parse_yaml(text: str) -> Any:
    unsafe = DEEP_NESTING.search(text) or ANCHORS.search(text) or BASE_60.search(text)
    is_flat = text.count("[") + text.count("{") <= MAX_BRACKETS and not unsafe
    if is_flat and yaml.__with_libyaml__:
        try:
            return yaml.CSafeLoader(text).get_single_data()
        except (yaml.YAMLError, OverflowError, AttributeError):
            return {}
    return untrusted_files.parse_yaml(text)
