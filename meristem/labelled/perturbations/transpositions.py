"""Transpositions: two neighbouring letters of a word, or two neighbouring ideographs, in the wrong order."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import (
    Perturbation,
    TextUnit,
    Units,
    draw_indices,
    is_single_ideograph,
    is_word,
)


class Transpositions(Perturbation):
    """Two letters swapped in each chosen word; tags keep their places."""

    summary = "two neighbouring letters of a word, or two neighbouring ideographs, swapped"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """One swap in the share `severity` of the words."""
        result = list(units)
        candidates = [index for index in range(len(units)) if _can_swap(units, index)]
        for index in draw_indices(candidates, severity, rng):
            unit = result[index]
            if is_single_ideograph(unit.text):
                following = result[index + 1]
                result[index] = replace(unit, text=following.text)
                result[index + 1] = replace(following, text=unit.text)
            else:
                result[index] = replace(unit, text=swap_letters(unit.text, rng))
        return result


def swap_letters(word: str, rng: Generator) -> str:
    """The word with two different neighbouring letters swapped."""
    places = [at for at in range(len(word) - 1) if word[at] != word[at + 1]]
    at = places[int(rng.integers(len(places)))]
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _can_swap(units: Units, index: int) -> bool:
    text = units[index].text
    if not is_single_ideograph(text):
        return is_word(text) and len(set(text)) > 1
    if index + 1 == len(units) or units[index].space or not is_single_ideograph(units[index + 1].text):
        return False
    return _entity(units[index]) == _entity(units[index + 1]) and text != units[index + 1].text


def _entity(unit: TextUnit) -> str | None:
    """The tag without B- or I-: two ideographs of one entity may be swapped, an entity's and its neighbour's not."""
    return None if unit.tag is None else unit.tag.partition("-")[2] or unit.tag
