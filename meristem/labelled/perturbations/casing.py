"""Casing: words in capitals, in lower case, or with a capital where there was none."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices, draw_item


class Casing(Perturbation):
    """Another case for each chosen word."""

    summary = "a word in capitals, in lower case or with another first letter"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """Another case for the share `severity` of the words that have one."""
        result = list(units)
        candidates = [index for index, unit in enumerate(units) if unit.text.upper() != unit.text.lower()]
        for index in draw_indices(candidates, severity, rng):
            text = units[index].text
            cases = {text.upper(), text.lower(), text[:1].swapcase() + text[1:]} - {text}
            result[index] = replace(units[index], text=draw_item(sorted(cases), rng))
        return result
