"""Part-of-speech tagging: words with their Universal Dependencies tags."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from meristem.samples.microworld.facts import Location, Mention, Noun, Person, Thing, Town
from meristem.samples.sets.entities import NEW_NAME_SHARE, TAGGABLE_KINDS
from meristem.samples.sets.excerpt import Excerpt, realize_excerpt, without_reasons
from meristem.samples.sets.name_replacement import replace_names
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_rows
from meristem.samples.sets.word_spans import split_words, tagged_row

_NOUN_MATERIALS = "iron copper silver gold glass clay leather cotton silk plastic bamboo stone paper"
NOUN_MATERIALS = frozenset(_NOUN_MATERIALS.split())
"""Materials that are nouns when they modify a noun."""
NAME_ADJECTIVES = frozenset({"general", "botanical", "spicy", "fried", "roast", "steamed", "grilled", "salted", "thin"})
"""Adjectives in names of places and dishes."""


def row(request: SampleRequest) -> Row | None:
    """One or two consecutive sentences."""
    story = replace_names(request.story, NEW_NAME_SHARE, request.rng)
    beats = [beat for beat in story.beats if all(fact.kind in TAGGABLE_KINDS for fact in beat)]
    length = request.label_rng.randint(1, 2)
    start = request.rng.randint(0, max(0, len(beats) - length))
    passage = realize_excerpt(story, [without_reasons(beat) for beat in beats[start : start + length]], "en")
    words = split_words(passage.text)
    return tagged_row(words, list(pos_tags(passage)), passage.text) if words else None


def pos_tags(passage: Excerpt) -> Iterator[str]:
    """A tag for each word: from the mention or phrase it belongs to, else from the tables and the next word."""
    words = split_words(passage.text)
    phrase_tags = _phrase_tags(passage)
    for number, (word, start, end) in enumerate(words):
        mentions = [mention for mention in passage.mentions() if mention.start <= start and end <= mention.end]
        next_word = words[number + 1][0].lower() if number + 1 < len(words) else ""
        mentions.sort(key=lambda mention: mention.end - mention.start)
        mention_tag = _mention_tag(word, mentions[0], end) if mentions else None
        yield mention_tag or phrase_tags.get(word.lower()) or _table_tag(word, next_word)


def _mention_tag(word: str, mention: Mention, end: int) -> str | None:
    """The tag of a word of a mention; articles, pronouns and possessives are looked up in the tables."""
    entity = mention.entity
    if isinstance(entity, Person | Town):
        name = entity.name.english.split()
        return "PROPN" if word in name else None
    noun = entity.noun.english.split()
    if isinstance(entity, Location):
        return None if word not in noun else "ADJ" if word in NAME_ADJECTIVES else "NOUN"
    head = mention.end - len(entity.noun.english)
    if end > head and word in noun:
        return "NOUN"
    return _description_tags(entity).get(word)


def _description_tags(thing: Thing) -> dict[str, str]:
    """Tags of the adjectives of a thing; most materials are nouns."""
    adjectives = [term.english for term in (thing.quality, thing.colour, thing.material) if term is not None]
    material = thing.material.english if thing.material else ""
    return {
        word: "NOUN" if word == material and word in NOUN_MATERIALS else "ADJ"
        for term in adjectives
        for word in term.split()
    }


def _phrase_tags(passage: Excerpt) -> dict[str, str]:
    """Tags of the words of jobs, relations, feelings, colors, dishes and produce in these sentences."""
    tags_by_word: dict[str, str] = {}
    for fact in passage.facts:
        for person in (fact.who, fact.whom):
            if person is not None and fact.kind.startswith(("introduce", "relate")):
                tags_by_word[person.job.english] = "NOUN"
        if isinstance(fact.term, Noun):
            text = fact.term.plural if fact.kind == "stock" else fact.term.english
            table_words = _tag_tables()[0]
            tags_by_word |= {
                word: "ADJ" if word in NAME_ADJECTIVES else "NOUN" for word in text.split() if word not in table_words
            }
        elif fact.kind in {"happy", "sad", "paint"} and fact.term is not None:
            tags_by_word |= dict.fromkeys(fact.term.english.split(), "ADJ")
        elif fact.kind.startswith("relate") and fact.term is not None:
            *first, last = fact.term.english.split()
            tags_by_word |= {last: "NOUN", **{word: "NOUN" if word == "business" else "ADJ" for word in first}}
    return tags_by_word


def _table_tag(word: str, next_word: str) -> str:
    """The tag of any other word."""
    if not word[0].isalnum() and word != "'s":
        return "PUNCT"
    always, by_next = _tag_tables()
    lower = word.lower()
    if "-" in word:
        return "NUM"
    return by_next.get((lower, next_word)) or always[lower]


@cache
def _tag_tables() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Tags by word, and by a word with the one after it."""
    always: dict[str, str] = {}
    by_next: dict[tuple[str, str], str] = {}
    for tag, words in read_rows("pos-en"):
        first, _, next_words = words.partition(">")
        if next_words:
            by_next |= {(first.strip(), word): tag for word in next_words.split()}
        else:
            always |= dict.fromkeys((word.lower() for word in first.split()), tag)
    return always, by_next
