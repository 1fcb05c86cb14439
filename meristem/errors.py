"""What a person can mend, said so; nothing heavy is imported here, so that the command's help stays quick."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class MeristemError(Exception):
    """Something a person can mend: what, where, and what to do about it."""


class RecipeError(MeristemError):
    """A recipe that cannot run as written."""


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of an error message: the nearest right name, or all of them."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"
