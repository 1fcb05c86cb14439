"""Commands: user utterances with an intent and slots."""

from __future__ import annotations

import re
from collections.abc import Callable

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.chinese import with_measure_word
from meristem.samples.microworld.clause_templates import split_template
from meristem.samples.microworld.english import english_number
from meristem.samples.microworld.facts import Location, PlaceNoun, Town
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.sets.excerpt import place_phrase
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_groups
from meristem.samples.sets.word_spans import bio_tags, split_words

FILLER_GROUPS = ("before", "after")
"""Groups of filler words around a command."""
DAY_PARTS = {"en": ("this morning", "at noon", "in the afternoon", "this evening", "after dark", "around midday"),
         "zh": ("早上", "中午", "下午", "晚上", "天黑以后", "傍晚")}  # fmt: skip


def row(request: SampleRequest) -> Row | None:
    """One command with tagged words."""
    table = read_groups("commands", request.language)
    intent = request.label_rng.choice([name for name in table if name not in FILLER_GROUPS])
    rng, space = request.rng, " " if request.language == "en" else ""
    text, spans = "", []
    if rng.chance(0.3):
        text += rng.choice(table["before"]) + space
    produce = rng.choice(load_lexicon().produce)
    for literal, slot in split_template(rng.choice(table[intent])):
        text += literal
        if slot == "measure":
            text += produce.measure
        elif slot:
            start = len(text)
            if slot == "goods":
                text += produce.plural if request.language == "en" else produce.chinese
            else:
                text += SLOT_FILLERS[slot](rng, request.language)
            spans.append((start, len(text), slot))
    if rng.chance(0.3):
        text += (space or "，") + rng.choice(table["after"])
    words = split_words(text)
    return {"words": [word for word, *_ in words], "tags": bio_tags(words, spans), "intent": intent, "text": text}


def _draw_place(rng: BlockRandom, language: str) -> str:
    place_noun: PlaceNoun = rng.choice(load_lexicon().place_nouns[rng.choice(("kitchen", "shop", ""))])
    return place_phrase(Location(0, place_noun, Town(0, place_noun)), language)


def _draw_count(rng: BlockRandom, language: str) -> str:
    count = rng.randint(2, 12)
    return english_number(count) if language == "en" else with_measure_word(count, "")


def _draw_day(rng: BlockRandom, language: str) -> str:
    day = rng.choice(load_lexicon().times["weekday", str(rng.randint(0, 6))])
    return f"on {day.english}" if language == "en" else day.chinese


def _phrase_filler(kind: str) -> Callable[[BlockRandom, str], str]:
    def fill(rng: BlockRandom, language: str) -> str:
        return re.sub(r"\{\w+\}", "", rng.choice(load_lexicon().phrases[kind]).text(language))

    return fill


SLOT_FILLERS: dict[str, Callable[[BlockRandom, str], str]] = {
    "person": lambda rng, language: rng.choice(load_lexicon().names).term.text(language),
    "town": lambda rng, language: rng.choice(load_lexicon().towns).text(language),
    "thing": lambda rng, language: rng.choice(load_lexicon().things).text(language),
    "colour": lambda rng, language: rng.choice(load_lexicon().qualities["colour"]).text(language),
    "dish": lambda rng, language: rng.choice(load_lexicon().dishes).text(language),
    "part": lambda rng, language: rng.choice(DAY_PARTS[language]),
    "task": _phrase_filler("task"), "topic": _phrase_filler("topic"), "place": _draw_place,
    "count": _draw_count, "day": _draw_day,
}  # fmt: skip
