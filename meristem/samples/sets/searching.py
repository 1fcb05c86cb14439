"""What people of the small world search for, and lines that were written for it, good and bad."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count

from meristem.errors import MeristemError
from meristem.randomness import generator
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.facts import Term
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.sets.asking import APART, PARTS, part
from meristem.samples.sets.excerpt import said
from meristem.samples.sets.tables import groups

KINDS = ("buy", "repair", "borrow", "gift", "fresh")
SOLD = frozenset({"furniture", "machine", "music", "clothing"})
"""Sorts of things that can be bought, repaired and borrowed."""
RIGHT, WRONG = 0.7, 0.2
"""How often a line names what was asked for, and how often something else; the others are vague."""


@dataclass(frozen=True)
class Search:
    """A query and what is behind it."""

    query: str
    kind: str
    subject: str
    """What it is about: a thing, somebody to give something to, or goods."""
    town: str
    language: str


@cache
def towns(language: str) -> tuple[str, ...]:
    """Towns that have a name of one word."""
    return tuple(said(town, language) for town in lexicon().towns if town.english.isalpha())


@cache
def subjects(kind: str, language: str) -> tuple[str, ...]:
    """What a query of this kind can be about."""
    known = lexicon()
    if kind == "gift":
        return tuple(said(one.term, language) for one in known.relations if one.term.english[0] not in "aou")
    if kind == "fresh":
        return tuple(one.plural if language == "en" else one.chinese for one in known.produce if _tells(one))
    return tuple(said(one, language) for one in known.things if one.kinds & SOLD and _tells(one))


def _tells(term: Term) -> bool:
    """Whether a word takes "a", has one sense, and is part of no other in Chinese."""
    return term.english.isalpha() and term.english[0] not in "aeiou" and not term.sense and len(term.chinese) > 1


@cache
def searches(language: str) -> Mapping[str, Search]:
    """Every query there is."""
    return {one.query: one for one in _searches(language)}


def _searches(language: str) -> Iterator[Search]:
    for kind in KINDS:
        for template in groups("clicks", language)[f"asked {kind}"]:
            for subject in subjects(kind, language):
                for town in towns(language):
                    yield Search(template.format(subject=subject, town=town), kind, subject, town, language)


def search(query: str, language: str) -> Search:
    """What is behind a query."""
    found = searches(language).get(" ".join(query.split()))
    if found is None:
        raise MeristemError(f"{query!r}: nobody searches for this in the small world; builtin:microworld-queries?"
                            f"language={language} has what people search for")  # fmt: skip
    return found


@lru_cache(maxsize=64)
def drawn(seed: int, number: int, language: str) -> Search:
    """Query `number` of a seed; other parts of the seeds have other queries."""
    for attempt in count():
        dice = Dice(generator(seed + APART, "labelled searches", attempt, number))
        kind = dice.pick(KINDS)
        template = dice.pick(groups("clicks", language)[f"asked {kind}"])
        query = template.format(subject=dice.pick(subjects(kind, language)), town=dice.pick(towns(language)))
        if part(query) == seed % PARTS:
            return searches(language)[query]
    raise AssertionError  # an endless count


def line(of: Search, dice: Dice) -> str:
    """A line that somebody wrote for a query, with whatever it happens to say."""
    table = groups("clicks", of.language)
    kind = of.kind if dice.chance(0.75) else dice.pick((*KINDS, "other"))
    subject = _named(of.subject, subjects(of.kind, of.language), table["vague"], dice)
    adjective = dice.pick(table[dice.pick(("friendly", "friendly", "plain", "gloomy"))])
    begun = dice.pick(table[f"line {kind}"]).format(subject=subject, adjective=adjective)
    price = dice.pick(("cheap", "cheap", "fair", "dear", ""))
    parts = [dice.pick(table[price])] if price else []
    if dice.chance(0.8):
        town = of.town if dice.chance(0.85) else dice.pick(towns(of.language))
        parts.insert(dice.between(0, len(parts)), dice.pick(table["place"]).format(town=town))
    end = dice.pick(("end", "end", "end", "long", ""))
    return joined([begun, *parts, *([dice.pick(table[end])] if end else [])], of.language)


def best_line(of: Search) -> str:
    """A line that says all that people look for."""
    table = groups("clicks", of.language)
    begun = table[f"line {of.kind}"][0].format(subject=of.subject, adjective=table["friendly"][0])
    place = table["place"][0].format(town=of.town)
    return joined([begun, place, table["cheap"][0], table["end"][0]], of.language)


def joined(parts: list[str], language: str) -> str:
    """Parts of a line as a sentence."""
    return f"{' '.join(parts)}." if language == "en" else f"{'，'.join(parts)}。"


def _named(right: str, others: tuple[str, ...], vague: tuple[str, ...], dice: Dice) -> str:
    roll = dice.roll()
    return right if roll < RIGHT else dice.pick(others if roll < RIGHT + WRONG else vague)
