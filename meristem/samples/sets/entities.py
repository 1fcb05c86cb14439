"""Entities: people, towns, places, things and dishes marked word by word, Chinese sign by sign."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meristem.samples.microworld import Person, Place, Thing, Town
from meristem.samples.microworld.chinese import number as number_in_chinese
from meristem.samples.microworld.english import number as number_in_english
from meristem.samples.microworld.facts import Fact, Noun
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.excerpt import Excerpt, excerpt, noun, plain
from meristem.samples.sets.renamed import renamed
from meristem.samples.sets.splitting import outside_in, split

KINDS: dict[type, str] = {Person: "person", Town: "town", Place: "place", Thing: "thing"}
TOLD = frozenset(
    {"introduce", "introduce_age", "introduce_years", "relate", "relate_age", "own", "carry", "distance", "move",
     "travel", "buy", "stock", "sell", "give", "lend", "return", "lose", "find", "put", "fetch", "hide", "search",
     "break", "repair", "paint", "clean", "care", "meet", "wait", "show", "tell", "cook", "eat", "happy", "sad",
     "located", "owned", "held", "is_at"}
)  # fmt: skip
"""Facts whose sentences name nothing else that is a thing or a dish."""
LONGEST = 2
UNHEARD = 0.6
"""The share of names that are new in every story: a list of names is no reader."""
DISHES = 0.15
"""How often a sentence is looked for that names a dish: few do."""


def row(ask: Ask) -> Row | None:
    """One or two neighbouring sentences with all they name."""
    story = renamed(ask.story, UNHEARD, ask.dice)
    beats = [beat for beat in story.beats if all(fact.kind in TOLD for fact in beat)]
    length, dish = ask.wish.between(1, LONGEST), ask.wish.chance(DISHES)
    starts = [n for n, beat in enumerate(beats) if not dish or any(fact.kind in {"cook", "eat"} for fact in beat)]
    if not starts:
        return None
    start = min(ask.dice.pick(starts), max(0, len(beats) - length))
    told = excerpt(story, [plain(beat) for beat in beats[start : start + length]], ask.language)
    words = split(told.text)
    tags = outside_in(words, spans(told))
    return {"words": [word for word, *_ in words], "tags": tags, "text": told.text}


def spans(told: Excerpt) -> Iterator[tuple[int, int, str]]:
    """What is named: names, and nouns without articles, owners and adjectives."""
    for mention in told.named():
        start = mention.end - len(noun(mention.entity, told.language))
        yield start, mention.end, KINDS[type(mention.entity)]
    for start, sentence in zip(told.starts, told.told, strict=True):
        for fact in sentence.facts:
            if fact.kind in {"cook", "eat", "stock"}:
                yield from _food(fact, sentence.text, start, told.language)


def _food(fact: Fact, text: str, start: int, language: str) -> Iterator[tuple[int, int, str]]:
    """A dish without its article, and what is bought by number."""
    assert isinstance(fact.term, Noun)
    if fact.kind == "stock":
        count = number_in_english(fact.count) + " " if language == "en" else number_in_chinese(fact.count)
        word, kind = (fact.term.plural if language == "en" else fact.term.chinese), "thing"
        counted = count + word if language == "en" else fact.term.measure + word
    else:
        word = re.sub("^an? ", "", fact.term.english) if language == "en" else fact.term.chinese
        counted, kind = word, "dish"
    at = text.lower().rfind(counted.lower())
    assert at >= 0, (text, counted)
    stop = start + at + len(counted)
    yield stop - len(word), stop, kind
