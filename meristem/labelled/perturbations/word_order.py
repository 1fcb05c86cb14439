"""Word order: neighbouring words swapped; entities, and negations with what they negate, stay together."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, blocks, draw_indices, is_word


class WordOrder(Perturbation):
    """Chosen words change places with the next one; tags move with their words."""

    summary = "neighbouring words swapped; entities and negations stay whole"
    keeps_order = False
    label_risk = "word order may carry the label, as in comparisons"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The share `severity` of the words swapped with a neighbour."""
        groups = blocks(units)
        spaces = [group[-1].space for group in groups]
        pairs = [
            index
            for index in range(len(groups) - 1)
            if is_word(groups[index][-1].text) and is_word(groups[index + 1][0].text)
        ]
        for index in draw_indices(pairs, severity / 2, rng):  # a swap moves two words
            groups[index], groups[index + 1] = groups[index + 1], groups[index]
        for group, space in zip(groups, spaces, strict=True):  # spaces stay where they are
            group[-1] = replace(group[-1], space=space)
        return [unit for group in groups for unit in group]
