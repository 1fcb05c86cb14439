"""Missing spaces: the white space between two words left out."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices


class MissingSpaces(Perturbation):
    """The space behind each chosen word left out."""

    summary = "the space between two words left out"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The share `severity` of the spaces left out."""
        result = list(units)
        for index in draw_indices([i for i, unit in enumerate(units[:-1]) if unit.space], severity, rng):
            result[index] = replace(units[index], space="")
        return result
