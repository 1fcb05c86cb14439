"""Search queries of the microworld, and result lines for them, good and bad."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count

from meristem.config.errors import MeristemError
from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Term
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.sets.sample_request import NUM_PARTITIONS, SEED_OFFSET, seed_partition
from meristem.samples.sets.template_tables import read_groups
from meristem.utils.randomness import generator

INTENT_KINDS = ("buy", "repair", "borrow", "gift", "fresh")
SOLD_KINDS = frozenset({"furniture", "machine", "music", "clothing"})
"""Kinds of things that can be bought, repaired and borrowed."""
RIGHT_PROBABILITY, WRONG_PROBABILITY = 0.7, 0.2
"""How often a line names the subject of the query, and how often another one; the others are vague."""


@dataclass(frozen=True)
class SearchIntent:
    """A query with its intent."""

    query: str
    kind: str
    subject: str
    """The subject: a thing, the recipient of a gift, or produce."""
    town: str
    language: str


@cache
def town_names(language: str) -> tuple[str, ...]:
    """Towns with a one-word name."""
    return tuple(town.text(language) for town in load_lexicon().towns if town.english.isalpha())


@cache
def query_subjects(kind: str, language: str) -> tuple[str, ...]:
    """Possible subjects of a query of this kind."""
    lexicon = load_lexicon()
    if kind == "gift":
        return tuple(item.term.text(language) for item in lexicon.relations if item.term.english[0] not in "aou")
    if kind == "fresh":
        produce = filter(_is_distinctive, lexicon.produce)
        return tuple(item.plural if language == "en" else item.chinese for item in produce)
    return tuple(item.text(language) for item in lexicon.things if item.kinds & SOLD_KINDS and _is_distinctive(item))


def _is_distinctive(term: Term) -> bool:
    """Whether a noun takes "a", has one sense, and is not a single character in Chinese."""
    return term.english.isalpha() and term.english[0] not in "aeiou" and not term.sense and len(term.chinese) > 1


@cache
def all_intents(language: str) -> Mapping[str, SearchIntent]:
    """Every possible query."""
    return {intent.query: intent for intent in _iter_intents(language)}


def _iter_intents(language: str) -> Iterator[SearchIntent]:
    for kind in INTENT_KINDS:
        for template in read_groups("clicks", language)[f"asked {kind}"]:
            for subject in query_subjects(kind, language):
                for town in town_names(language):
                    yield SearchIntent(template.format(subject=subject, town=town), kind, subject, town, language)


def parse_query(query: str, language: str) -> SearchIntent:
    """The intent of a query."""
    intent = all_intents(language).get(" ".join(query.split()))
    if intent is None:
        raise MeristemError(
            f"{query!r} is not a query of the microworld; builtin:microworld-queries?language={language} lists them"
        )
    return intent


@lru_cache(maxsize=64)
def draw_intent(seed: int, number: int, language: str) -> SearchIntent:
    """Query `number` of a seed; seeds of other partitions have other queries."""
    for attempt in count():
        rng = BlockRandom(generator(seed + SEED_OFFSET, "labelled searches", attempt, number))
        kind = rng.choice(INTENT_KINDS)
        template = rng.choice(read_groups("clicks", language)[f"asked {kind}"])
        subject, town = rng.choice(query_subjects(kind, language)), rng.choice(town_names(language))
        query = template.format(subject=subject, town=town)
        if seed_partition(query) == seed % NUM_PARTITIONS:
            return all_intents(language)[query]
    raise AssertionError  # an endless count


def draw_line(intent: SearchIntent, rng: BlockRandom) -> str:
    """A random result line for a query."""
    table = read_groups("clicks", intent.language)
    kind = intent.kind if rng.chance(0.75) else rng.choice((*INTENT_KINDS, "other"))
    subject = _draw_subject(intent.subject, query_subjects(intent.kind, intent.language), table["vague"], rng)
    adjective = rng.choice(table[rng.choice(("friendly", "friendly", "plain", "gloomy"))])
    opening = rng.choice(table[f"line {kind}"]).format(subject=subject, adjective=adjective)
    price_group = rng.choice(("cheap", "cheap", "fair", "dear", ""))
    parts = [rng.choice(table[price_group])] if price_group else []
    if rng.chance(0.8):
        town = intent.town if rng.chance(0.85) else rng.choice(town_names(intent.language))
        parts.insert(rng.randint(0, len(parts)), rng.choice(table["place"]).format(town=town))
    end = rng.choice(("end", "end", "end", "long", ""))
    return join_parts([opening, *parts, *([rng.choice(table[end])] if end else [])], intent.language)


def best_line(intent: SearchIntent) -> str:
    """The optimal line for a query."""
    table = read_groups("clicks", intent.language)
    opening = table[f"line {intent.kind}"][0].format(subject=intent.subject, adjective=table["friendly"][0])
    town_phrase = table["place"][0].format(town=intent.town)
    return join_parts([opening, town_phrase, table["cheap"][0], table["end"][0]], intent.language)


def join_parts(parts: list[str], language: str) -> str:
    """The parts of a line as a sentence."""
    return f"{' '.join(parts)}." if language == "en" else f"{'，'.join(parts)}。"


def _draw_subject(right: str, others: tuple[str, ...], vague: tuple[str, ...], rng: BlockRandom) -> str:
    draw = rng.random()
    if draw < RIGHT_PROBABILITY:
        return right
    return rng.choice(others if draw < RIGHT_PROBABILITY + WRONG_PROBABILITY else vague)
