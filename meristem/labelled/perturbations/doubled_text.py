"""Doubled text: a passage of a text pasted twice; entities are doubled whole."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, blocks, draw_count, is_single_ideograph


class DoubledText(Perturbation):
    """A run of words stands twice, one behind the other, with their tags."""

    summary = "a run of words pasted twice"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """A run of the share `severity` of the words, doubled."""
        groups = blocks(units)
        size = draw_count(len(groups), severity, rng)
        start = int(rng.integers(len(groups) - size + 1))
        first = [list(group) for group in groups[start : start + size]]
        if first and not first[-1][-1].space and not is_single_ideograph(first[-1][-1].text):
            first[-1][-1] = replace(first[-1][-1], space=" ")  # else two words would become one
        doubled = [*groups[:start], *first, *groups[start : start + size], *groups[start + size :]]
        return [unit for group in doubled for unit in group]
