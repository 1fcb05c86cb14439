"""Parts of speech: each word of one or two sentences with its tag of Universal Dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from meristem.samples.microworld import Mention, Person, Place, Thing, Town
from meristem.samples.microworld.facts import Noun
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.entities import TOLD, UNHEARD
from meristem.samples.sets.excerpt import Excerpt, excerpt, plain
from meristem.samples.sets.renamed import renamed
from meristem.samples.sets.splitting import split
from meristem.samples.sets.tables import rows

STUFF = frozenset(
    {"iron", "copper", "silver", "gold", "glass", "clay", "leather", "cotton", "silk", "plastic"}
    | {"bamboo", "stone", "paper"}
)
"""Materials that are nouns before a noun."""
DESCRIBED = frozenset({"general", "botanical", "spicy", "fried", "roast", "steamed", "grilled", "salted", "thin"})
"""Adjectives inside names of places and dishes."""


def row(ask: Ask) -> Row | None:
    """One or two neighbouring sentences."""
    story = renamed(ask.story, UNHEARD, ask.dice)
    beats = [beat for beat in story.beats if all(fact.kind in TOLD for fact in beat)]
    length = ask.wish.between(1, 2)
    start = ask.dice.between(0, max(0, len(beats) - length))
    told = excerpt(story, [plain(beat) for beat in beats[start : start + length]], "en")
    words = split(told.text)
    return {"words": [word for word, *_ in words], "tags": list(tags(told)), "text": told.text} if words else None


def tags(told: Excerpt) -> Iterator[str]:
    """A tag for each word: from what it is part of the name of, else from the tables and its neighbours."""
    words = split(told.text)
    open_ = _phrases(told)
    for number, (word, start, end) in enumerate(words):
        inside = [one for one in told.mentions() if one.start <= start and end <= one.end]
        after = words[number + 1][0].lower() if number + 1 < len(words) else ""
        named = _named(word, min(inside, key=lambda one: one.end - one.start), end) if inside else None
        yield named or open_.get(word.lower()) or _plain(word, after)


def _named(word: str, mention: Mention, end: int) -> str | None:
    """The tag of a word of a name; articles, pronouns and possessives are looked up like any other word."""
    entity = mention.entity
    if isinstance(entity, Person | Town):
        name = entity.name.english.split()
        return "PROPN" if word in name else None
    noun = entity.noun.english.split()
    if isinstance(entity, Place):
        return None if word not in noun else "ADJ" if word in DESCRIBED else "NOUN"
    head = mention.end - len(entity.noun.english)
    if end > head and word in noun:
        return "NOUN"
    return _described(entity).get(word)


def _described(thing: Thing) -> dict[str, str]:
    """The adjectives of a thing; of its materials most are nouns."""
    told = [term.english for term in (thing.quality, thing.colour, thing.material) if term is not None]
    stuff = thing.material.english if thing.material else ""
    return {word: "NOUN" if word == stuff and word in STUFF else "ADJ" for term in told for word in term.split()}


def _phrases(told: Excerpt) -> dict[str, str]:
    """Words of jobs, relations, feelings, colours, dishes and goods that these sentences tell."""
    found: dict[str, str] = {}
    for fact in told.facts:
        for person in (fact.who, fact.whom):
            if person is not None and fact.kind.startswith(("introduce", "relate")):
                found[person.job.english] = "NOUN"
        if isinstance(fact.term, Noun):
            text = fact.term.plural if fact.kind == "stock" else fact.term.english
            known = _table()[0]
            found |= {w: "ADJ" if w in DESCRIBED else "NOUN" for w in text.split() if w not in known}
        elif fact.kind in {"happy", "sad", "paint"} and fact.term is not None:
            found |= dict.fromkeys(fact.term.english.split(), "ADJ")
        elif fact.kind.startswith("relate") and fact.term is not None:
            *first, last = fact.term.english.split()
            found |= {last: "NOUN", **{w: "NOUN" if w == "business" else "ADJ" for w in first}}
    return found


def _plain(word: str, after: str) -> str:
    """The tag of any other word."""
    if not word[0].isalnum() and word != "'s":
        return "PUNCT"
    always, by_next = _table()
    lower = word.lower()
    if "-" in word:
        return "NUM"
    return by_next.get((lower, after)) or always[lower]


@cache
def _table() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Tags by word, and by a word with the one after it."""
    always: dict[str, str] = {}
    by_next: dict[tuple[str, str], str] = {}
    for tag, words in rows("pos-en"):
        first, _, after = words.partition(">")
        if after:
            by_next |= {(first.strip(), word): tag for word in after.split()}
        else:
            always |= dict.fromkeys((word.lower() for word in first.split()), tag)
    return always, by_next
