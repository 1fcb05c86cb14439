"""Named entity recognition: people, towns, places, things and dishes as BIO tags, per character in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meristem.samples.microworld.chinese import chinese_number as number_in_chinese
from meristem.samples.microworld.english import english_number as number_in_english
from meristem.samples.microworld.facts import Fact, Location, Noun, Person, Thing, Town
from meristem.samples.sets.excerpt import Excerpt, entity_noun, realize_excerpt, without_reasons
from meristem.samples.sets.name_replacement import replace_names
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.word_spans import bio_tags, split_words, tagged_row

ENTITY_LABELS: dict[type, str] = {Person: "person", Town: "town", Location: "place", Thing: "thing"}
TAGGABLE_KINDS = frozenset(
    {"introduce", "introduce_age", "introduce_years", "relate", "relate_age", "own", "carry", "distance", "move",
     "travel", "buy", "stock", "sell", "give", "lend", "return", "lose", "find", "put", "fetch", "hide", "search",
     "break", "repair", "paint", "clean", "care", "meet", "wait", "show", "tell", "cook", "eat", "happy", "sad",
     "located", "owned", "held", "is_at"}
)  # fmt: skip
"""Facts whose sentences mention no other things or dishes."""
DISH_KINDS = frozenset({"cook", "eat"})
MAX_SENTENCES = 2
NEW_NAME_SHARE = 0.6
"""The share of invented names, so that memorizing a list of names is not enough."""
DISH_PROBABILITY = 0.15
"""How often a sentence with a dish is chosen: few have one."""


def row(request: SampleRequest) -> Row | None:
    """One or two consecutive sentences with all their entities."""
    story = replace_names(request.story, NEW_NAME_SHARE, request.rng)
    beats = [beat for beat in story.beats if all(fact.kind in TAGGABLE_KINDS for fact in beat)]
    length, wants_dish = request.label_rng.randint(1, MAX_SENTENCES), request.label_rng.chance(DISH_PROBABILITY)
    has_dish = [any(fact.kind in DISH_KINDS for fact in beat) for beat in beats]
    starts = [index for index in range(len(beats)) if has_dish[index] or not wants_dish]
    if not starts:
        return None
    start = min(request.rng.choice(starts), max(0, len(beats) - length))
    chosen = [without_reasons(beat) for beat in beats[start : start + length]]
    passage = realize_excerpt(story, chosen, request.language)
    words = split_words(passage.text)
    return tagged_row(words, bio_tags(words, entity_spans(passage)), passage.text)


def entity_spans(passage: Excerpt) -> Iterator[tuple[int, int, str]]:
    """Spans of names, and of nouns without articles, owners and adjectives."""
    for mention in passage.named_mentions():
        start = mention.end - len(entity_noun(mention.entity, passage.language))
        yield start, mention.end, ENTITY_LABELS[type(mention.entity)]
    for start, sentence in zip(passage.starts, passage.sentences, strict=True):
        for fact in sentence.facts:
            if fact.kind in DISH_KINDS | {"stock"}:
                yield from _food_spans(fact, sentence.text, start, passage.language)


def _food_spans(fact: Fact, text: str, start: int, language: str) -> Iterator[tuple[int, int, str]]:
    """Spans of dishes without their article, and of counted produce."""
    assert isinstance(fact.term, Noun)
    if fact.kind == "stock":
        count = number_in_english(fact.count) + " " if language == "en" else number_in_chinese(fact.count)
        word, kind = (fact.term.plural if language == "en" else fact.term.chinese), "thing"
        phrase = count + word if language == "en" else fact.term.measure + word
    else:
        word = re.sub("^an? ", "", fact.term.english) if language == "en" else fact.term.chinese
        phrase, kind = word, "dish"
    position = text.lower().rfind(phrase.lower())
    assert position >= 0, (text, phrase)
    stop = start + position + len(phrase)
    yield stop - len(word), stop, kind
