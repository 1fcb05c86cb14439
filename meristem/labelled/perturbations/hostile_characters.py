"""Hostile characters: zero-width, control and direction-changing characters, and stacked combining marks."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices, draw_item

ZERO_WIDTH = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad")
CONTROL = ("\x00", "\x07", "\x08", "\x1b", "\x7f", "\x85")
DIRECTION = ("\u202e", "\u202d", "\u2066", "\u2067", "\u200f")
"""Overrides and isolates that turn the direction of what follows, and the right-to-left mark."""
COMBINING = ("\u0301\u0302\u0308", "\u0336\u0330\u0353", "\u0489\u035d\u0360")
KINDS = (ZERO_WIDTH, CONTROL, DIRECTION, COMBINING)


class HostileCharacters(Perturbation):
    """Characters that a reader does not see, inside each chosen word."""

    summary = "zero-width, control and direction-changing characters and stacked marks inside words"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """One insertion in the share `severity` of the words."""
        result = list(units)
        for index in draw_indices(range(len(units)), severity, rng):
            text = units[index].text
            at = int(rng.integers(1, len(text) + 1))
            inserted = draw_item(KINDS[int(rng.integers(len(KINDS)))], rng)
            result[index] = replace(units[index], text=text[:at] + inserted + text[at:])
        return result
