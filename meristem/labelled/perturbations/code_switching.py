"""Code switching: words replaced by their translations, from a small built-in dictionary or a file of one's own.

Built in are a hundred common words in English, German, Spanish, French and Chinese: English words become one of the
others, Chinese words English.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from numpy.random import Generator

from meristem.config.errors import MeristemError
from meristem.labelled.perturbation import (
    Perturbation,
    TextUnit,
    Units,
    are_tagged,
    draw_indices,
    draw_item,
    is_free,
    is_single_ideograph,
    match_case,
    remove_units,
)

BUILTIN = Path(__file__).parent / "code_switching.tsv"
MAX_IDEOGRAPHS = 4
"""Ideographs of the longest word that is looked up."""
Translations = Mapping[str, tuple[str, ...]]


class CodeSwitching(Perturbation):
    """Chosen words in another language; a word with a tag becomes a single word."""

    summary = "words in another language, from a dictionary of a hundred common words or a file of one's own"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The share `severity` of the words that are in the dictionary, translated."""
        translations = read_dictionary(self.dictionary or BUILTIN)
        tagged = are_tagged(units)
        places = _places(units, translations)
        result, removed = list(units), set[int]()
        for number in draw_indices(range(len(places)), severity, rng):
            at, size = places[number]
            word = "".join(unit.text for unit in units[at : at + size])
            options = [option for option in translations[word.lower()] if not tagged or " " not in option]
            if options:
                translation = match_case(draw_item(options, rng), word)
                result[at] = replace(units[at], text=translation, space=units[at + size - 1].space)
                removed |= set(range(at + 1, at + size))
        return remove_units(result, removed)


def _places(units: Units, translations: Translations) -> list[tuple[int, int]]:
    """(first unit, number of units) of every word in the dictionary, the longest first; they do not overlap."""
    found, at = [], 0
    while at < len(units):
        longest = MAX_IDEOGRAPHS if is_single_ideograph(units[at].text) else 1
        for size in range(min(longest, len(units) - at), 0, -1):
            group = units[at : at + size]
            is_run = size == 1 or all(is_single_ideograph(unit.text) and not unit.space for unit in group[:-1])
            is_known = "".join(unit.text for unit in group).lower() in translations
            if is_run and is_known and all(is_free(units, at + index) for index in range(size)):
                found.append((at, size))
                at += size - 1
                break
        at += 1
    return found


@cache
def read_dictionary(path: Path) -> Translations:
    """Word → translations; a line holds a word and its translations, separated by tabs."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MeristemError(f"{path}: the dictionary cannot be read: {error}") from None
    translations: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, 1):
        word, *others = (cell.strip() for cell in line.split("\t"))
        if not line.strip():
            continue
        if not word or not any(others):
            raise MeristemError(f"{path}:{number}: expected a word, a tab and its translations")
        translations[word.lower()] = tuple(filter(None, others))
        if path == BUILTIN and len(others[-1]) > 1:  # a single ideograph is often part of another word
            translations[others[-1]] = (word,)
    if not translations:
        raise MeristemError(f"{path}: the dictionary is empty")
    return translations
