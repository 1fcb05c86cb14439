"""OCR confusions: letters, digits and Chinese characters that text recognition takes for each other."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices, draw_item
from meristem.labelled.perturbations.lookalike_characters import SIMILAR_IDEOGRAPHS

CONFUSIONS = (
    *(("rn", "m"), ("m", "rn"), ("cl", "d"), ("d", "cl"), ("vv", "w"), ("w", "vv"), ("ii", "u"), ("nn", "m")),
    *(("l", "1"), ("1", "l"), ("I", "l"), ("l", "I"), ("i", "l"), ("o", "0"), ("O", "0"), ("0", "O")),
    *(("S", "5"), ("5", "S"), ("s", "5"), ("B", "8"), ("8", "B"), ("Z", "2"), ("2", "Z"), ("g", "9"), ("9", "g")),
    *(("e", "c"), ("c", "e"), ("h", "b"), ("b", "h"), ("n", "u"), ("u", "n"), ("t", "f"), ("f", "t"), ("a", "o")),
)
"""What is printed, and what is read."""


class OcrConfusions(Perturbation):
    """One misread place in each chosen word."""

    summary = "one place of a word misread: rn for m, 1 for l, a similar ideograph"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """One confusion in the share `severity` of the words that can be misread."""
        result = list(units)
        candidates = [index for index, unit in enumerate(units) if misreadings(unit.text)]
        for index in draw_indices(candidates, severity, rng):
            result[index] = replace(units[index], text=draw_item(misreadings(units[index].text), rng))
        return result


def misreadings(text: str) -> list[str]:
    """Every text that differs from this one by one confusion."""
    if text in SIMILAR_IDEOGRAPHS:
        return list(SIMILAR_IDEOGRAPHS[text])
    if not text.isascii() or not text.isalnum():
        return []
    return [
        text[:at] + read + text[at + len(printed) :]
        for printed, read in CONFUSIONS
        for at in range(len(text))
        if text.startswith(printed, at)
    ]
