"""Labelled sets from the small world, one file each: `row(ask)` makes one sample, true of its text by construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from meristem.samples.microworld import LANGUAGES
from meristem.samples.sets.asking import Ask, Row, rows

VERSION = 1
"""Raised whenever a seed would give another set."""


@dataclass(frozen=True)
class Set:
    """What a set is, and what it is asked for by."""

    told: str
    """One line for help."""
    key: str | None = None
    """The column whose text no other seed has, where samples are short enough to be alike by chance."""
    languages: tuple[str, ...] = LANGUAGES
    flags: tuple[str, ...] = ()
    """Options that are 0 or 1."""


SETS = {
    "sentiment": Set("texts with somebody's opinion: positive, negative or neutral", "text"),
    "topics": Set("passages with all of their topics, ten in all"),
    "entities": Set("words with BIO tags: person, town, place, thing, dish", "text"),
    "pos": Set("words with their parts of speech (English)", "text", ("en",)),
    "senses": Set("sentences with one word of several senses", "text"),
    "entailment": Set("two texts: does the second follow, contradict, or neither", "text"),
    "similarity": Set("two texts and how much of what they tell is the same, 0 to 5"),
    "questions": Set("passages, questions and answers in them (?unanswerable=1: some have none)", None, LANGUAGES,
                     ("unanswerable",)),
    "choices": Set("which of two sentences is the cause or the effect of a third", "text"),
    "summaries": Set("passages, and what became of the thing they are about"),
    "dialogues": Set("somebody tells and asks, and the reply"),
    "commands": Set("commands with twelve intents and their slots", "text"),
    "queries": Set("what people search for, with lines that answer it well or badly", "query"),
    "clicks": Set("lines shown for a query: where, how often, how often clicked, by known preferences", "query"),
}  # fmt: skip


def labelled(name: str, *, seed: int, size: int, language: str, options: dict[str, str]) -> Iterator[Row]:
    """The samples of a set in order."""
    of = SETS[name]
    make = import_module(f"meristem.samples.sets.{name}").row
    return rows(make, of.key, Ask(name, seed, 0, language, options), size)
