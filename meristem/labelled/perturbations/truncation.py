"""Truncation: the end of a text is missing; entities are cut off whole."""

from __future__ import annotations

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, blocks, draw_count


class Truncation(Perturbation):
    """The last words of a text left out, with their tags."""

    summary = "the end of the text missing"
    keeps_order = False
    label_risk = "the missing part may carry the label"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The text without the share `severity` of its words, the last ones; one always stays."""
        groups = blocks(units)
        kept_groups = groups[: max(1, len(groups) - draw_count(len(groups), severity, rng))]
        return [unit for group in kept_groups for unit in group]
