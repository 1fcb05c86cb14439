"""Shouting: exclamation marks behind words."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices


class Shouting(Perturbation):
    """Three exclamation marks behind each chosen word."""

    summary = "three exclamation marks behind a word"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The share `severity` of the words shouted."""
        result = list(units)
        for index in draw_indices(range(len(units)), severity, rng):
            result[index] = replace(units[index], text=units[index].text + "!!!")
        return result
