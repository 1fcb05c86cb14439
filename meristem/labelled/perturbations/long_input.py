"""Long input: thousands of characters without meaning before or behind a text, as a hostile or broken client sends."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, are_tagged, draw_item

MAX_CHARACTERS = 10_000
"""Characters added at severity 1."""
FILLERS = (".", "-", "a", "哈", "!?", "\u200b", "x ")


class LongInput(Perturbation):
    """A long run of one character, before or behind the text; texts with tags stay as they are."""

    summary = "a run of up to 10,000 meaningless characters before or behind the text"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """`severity` · 10,000 characters more."""
        if are_tagged(units) or not units or severity == 0:
            return list(units)
        filler = draw_item(FILLERS, rng)
        run = TextUnit(text=filler * (int(MAX_CHARACTERS * severity) // len(filler) or 1), space=" ")
        if rng.random() < 0.5:
            return [run, *units]
        return [*units[:-1], replace(units[-1], space=" "), replace(run, space="")]
