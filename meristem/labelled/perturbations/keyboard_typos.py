"""Keyboard typos: a letter replaced by one beside it on a QWERTY keyboard, hit twice, added or left out."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices, draw_item, is_latin_word

ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
ROW_OFFSETS = (0.0, 0.25, 0.75)
"""How far each row of keys is shifted to the right, in keys."""


def _neighbours() -> dict[str, str]:
    """The keys that touch each key."""
    places = {
        letter: (row, column + ROW_OFFSETS[row]) for row, keys in enumerate(ROWS) for column, letter in enumerate(keys)
    }
    return {
        letter: "".join(
            other
            for other, (other_row, other_column) in places.items()
            if other != letter and abs(row - other_row) <= 1 and abs(column - other_column) <= 1
        )
        for letter, (row, column) in places.items()
    }


NEIGHBOURS = _neighbours()


class KeyboardTypos(Perturbation):
    """One typo in each chosen word of Latin letters."""

    summary = "one keyboard typo in a word: a neighbouring key, a key hit twice, a letter too many or missing"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """One typo in the share `severity` of the words."""
        result = list(units)
        for index in draw_indices([i for i, unit in enumerate(units) if is_latin_word(unit.text)], severity, rng):
            result[index] = replace(units[index], text=add_typo(units[index].text, rng))
        return result


def add_typo(word: str, rng: Generator) -> str:
    """The word with one typo, which never leaves it as it is."""
    at = int(rng.integers(len(word)))
    letter = word[at]
    neighbours = NEIGHBOURS.get(letter.lower(), "")
    near = draw_item(neighbours, rng) if neighbours else letter
    near = near.upper() if letter.isupper() else near
    options = [word[:at] + letter + word[at:], word[:at] + word[at + 1 :]]
    if neighbours:
        options += [word[:at] + near + word[at + 1 :], word[: at + 1] + near + word[at + 1 :]]
    return draw_item(options, rng)
