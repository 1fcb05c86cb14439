"""Missing punctuation: punctuation marks left out."""

from __future__ import annotations

import unicodedata

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices, is_free, remove_units


class MissingPunctuation(Perturbation):
    """Punctuation marks left out, with their tags; those inside an entity stay."""

    summary = "punctuation marks left out"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The share `severity` of the punctuation marks left out; a text of nothing else stays."""
        marks = [index for index, unit in enumerate(units) if _is_mark(unit.text) and is_free(units, index)]
        removed = set(draw_indices(marks, severity, rng))
        return remove_units(units, removed) if len(removed) < len(units) else list(units)


def _is_mark(text: str) -> bool:
    return all(unicodedata.category(letter)[0] == "P" for letter in text)
