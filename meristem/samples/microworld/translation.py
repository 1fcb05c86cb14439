"""Translations: a passage of a story told in two languages from the same facts."""

from __future__ import annotations

from dataclasses import replace

from meristem.randomness import generator
from meristem.samples.microworld.facts import Story

MOST = 3  # sentences of a passage


def passage(told: Story) -> Story:
    """One to three sentences of a story, to be told as if nothing had been told before."""
    rng = generator(told.seed, "microworld passages", 0, told.number)
    length = int(rng.integers(1, MOST + 1))
    start = int(rng.integers(0, len(told.beats) - length + 1))
    stop = start + length
    return replace(told, beats=told.beats[start:stop], pace=told.pace[start:stop])
