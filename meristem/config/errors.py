"""Errors for users; imports nothing heavy, so that `--help` stays fast."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class MeristemError(Exception):
    """An error that the user can fix: the message says what is wrong, where, and what to do."""


class RecipeError(MeristemError):
    """An invalid recipe, setting or argument."""


def did_you_mean(word: str, candidates: Sequence[str]) -> str:
    """The end of an error message: the most similar known name, or all known names."""
    matches = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return f", did you mean {matches[0]}?" if matches else f"; known: {', '.join(sorted(candidates))}"
