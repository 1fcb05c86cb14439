"""Parallel passages for translation: a part of a story that is realized in two languages from the same facts."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld.facts import Story
from meristem.utils.randomness import generator

MAX_SENTENCES = 3


def select_passage(story: Story) -> Story:
    """One to three sentences of a story, realized as if they were its beginning."""
    rng = generator(story.seed, "microworld passages", 0, story.number)
    length = int(rng.integers(1, MAX_SENTENCES + 1))
    start = int(rng.integers(0, len(story.beats) - length + 1))
    stop = start + length
    return replace(story, beats=story.beats[start:stop], time_draws=story.time_draws[start:stop])
