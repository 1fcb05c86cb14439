"""Labelled sets from the microworld, one file each: `row(request)` makes one sample, correct by construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from meristem.samples.microworld import LANGUAGES
from meristem.samples.sets.sample_request import Row, SampleRequest, generate_rows

VERSION = 1
"""Increment whenever a seed would give another set."""


@dataclass(frozen=True)
class LabelledSet:
    """Description and options of a labelled set."""

    summary: str
    """One line of help."""
    unique_column: str | None = None
    """The column whose text is disjoint between seeds, for samples so short that they could coincide."""
    languages: tuple[str, ...] = LANGUAGES
    flags: tuple[str, ...] = ()
    """Options that are 0 or 1."""


SETS = {
    "sentiment": LabelledSet("texts with an opinion: positive, negative or neutral", "text"),
    "topics": LabelledSet("passages with all of their topics, out of ten"),
    "entities": LabelledSet("words with BIO tags: person, town, place, thing, dish", "text"),
    "pos": LabelledSet("words with their parts of speech (English)", "text", ("en",)),
    "senses": LabelledSet("sentences with one ambiguous word and its sense", "text"),
    "entailment": LabelledSet("two texts: entailment, contradiction or neutral", "text"),
    "similarity": LabelledSet("two texts and how similar their content is, 0 to 5"),
    "questions": LabelledSet(
        "passages, questions and answers in them (?unanswerable=1: some have none)", None, LANGUAGES, ("unanswerable",)
    ),
    "choices": LabelledSet("which of two sentences is the cause or the effect of a third", "text"),
    "summaries": LabelledSet("passages, and a summary of what happened to their main object"),
    "dialogues": LabelledSet("dialogues that end with a question, and the reply"),
    "commands": LabelledSet("commands with twelve intents and their slots", "text"),
    "queries": LabelledSet("search queries, with good and bad result lines", "query"),
    "tickets": LabelledSet(
        "support tickets and the team that answers them (?wrong=1: four of a hundred labels are wrong)",
        "message",
        LANGUAGES,
        ("wrong",),
    ),
    "clicks": LabelledSet("result lines of a query: position, impressions and clicks, by known preferences", "query"),
}


def generate_set(name: str, *, seed: int, size: int, language: str, options: dict[str, str]) -> Iterator[Row]:
    """The samples of a set in order."""
    labelled_set = SETS[name]
    make_row = import_module(f"meristem.samples.sets.{name}").row
    return generate_rows(make_row, labelled_set.unique_column, SampleRequest(name, seed, 0, language, options), size)
