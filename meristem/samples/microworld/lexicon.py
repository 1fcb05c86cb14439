"""The lexicon of the microworld, read once from the tables in `words/`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meristem.samples.microworld.facts import JobNoun, Noun, PlaceNoun, Term
from meristem.utils import word_tables

WORDS_FOLDER = Path(__file__).parent / "words"
ANY = "any"


@dataclass(frozen=True)
class PersonName:
    """A person's name and pronoun."""

    term: Term
    pronoun: str


@dataclass(frozen=True)
class Relation:
    """A relation between two people, and who can be the related one."""

    term: Term
    pronoun: str
    age: str

    def fits(self, pronoun: str, age_difference: int) -> bool:
        """Whether someone with this pronoun and age difference in years can have this relation."""
        age_fits = {"older": age_difference > 2, "younger": age_difference < -2}.get(self.age, True)
        return age_fits and self.pronoun in {pronoun, ANY}


@dataclass(frozen=True)
class Cause:
    """The cause of an opinion, and the opinions it can lead to."""

    term: Term
    opinions: tuple[Term, ...]


@dataclass(frozen=True)
class Lexicon:
    """All tables of words."""

    names: tuple[PersonName, ...]
    towns: tuple[Term, ...]
    jobs: tuple[JobNoun, ...]
    place_nouns: dict[str, tuple[PlaceNoun, ...]]
    things: tuple[Noun, ...]
    qualities: dict[str, tuple[Term, ...]]
    dishes: tuple[Noun, ...]
    produce: tuple[Noun, ...]
    relations: tuple[Relation, ...]
    phrases: dict[str, tuple[Term, ...]]
    reasons: dict[str, tuple[Term, ...]]
    causes: dict[str, tuple[Cause, ...]]
    scenes: tuple[Term, ...]
    times: dict[tuple[str, str], tuple[Term, ...]]


@cache
def load_lexicon() -> Lexicon:
    """The lexicon of the package."""
    materials = {row[3]: Term(row[1], row[2]) for row in _read_rows("qualities") if row[0] == "material"}
    food = {
        kind: tuple(_parse_food(row) for row in _read_rows("food") if row[0] == kind) for kind in ("dish", "produce")
    }
    times: dict[tuple[str, str], tuple[Term, ...]] = defaultdict(tuple)
    for when, part, english, chinese in _read_rows("times"):
        times[when, part] += (Term(english, chinese),)
    return Lexicon(
        names=tuple(PersonName(Term(english, chinese), pronoun) for english, chinese, pronoun in _read_rows("names")),
        towns=tuple(Term(english, chinese) for english, chinese in _read_rows("towns")),
        jobs=tuple(JobNoun(row[0], row[1], act=Term(row[2], row[3])) for row in _read_rows("jobs")),
        place_nouns=_read_place_nouns(),
        things=tuple(_parse_thing(row, materials) for row in _read_rows("things")),
        qualities=_read_groups("qualities"),
        dishes=food["dish"],
        produce=food["produce"],
        relations=tuple(Relation(Term(row[0], row[1]), row[2], row[3]) for row in _read_rows("relations")),
        phrases=_read_groups("phrases"),
        reasons=_read_groups("reasons"),
        causes=_read_causes(),
        scenes=tuple(Term(row[2], row[3], f"{row[0]}/{row[1]}") for row in _read_rows("scenes")),
        times=dict(times),
    )


def _parse_thing(row: tuple[str, ...], materials: dict[str, Term]) -> Noun:
    english, chinese, measure, kinds, material_names = row[:5]
    sense = f"{english}/{row[5]}" if len(row) > 5 else ""
    noun_materials = tuple(materials[name] for name in material_names.split() if name != "-")
    return Noun(english, chinese, sense, measure, "", frozenset(kinds.split()), noun_materials)


def _read_place_nouns() -> dict[str, tuple[PlaceNoun, ...]]:
    """Place nouns by use; all of them under the empty use."""
    nouns_by_use: dict[str, tuple[PlaceNoun, ...]] = defaultdict(tuple)
    for english, chinese, preposition, locative, uses in _read_rows("places"):
        place_noun = PlaceNoun(english, chinese, "", preposition, locative.strip("-"), frozenset(uses.split()))
        for use in ("", *uses.split()):
            nouns_by_use[use] += (place_noun,)
    return dict(nouns_by_use)


def _read_causes() -> dict[str, tuple[Cause, ...]]:
    """Causes by target and polarity, each with the opinions it supports."""
    opinions = {key: {term.english: term for term in terms} for key, terms in _read_groups("opinions").items()}
    causes_by_key: dict[str, tuple[Cause, ...]] = defaultdict(tuple)
    for key, english, chinese, opinion_words in _read_rows("causes"):
        causes_by_key[key] += (
            Cause(Term(english, chinese), tuple(opinions[key][word] for word in opinion_words.split(", "))),
        )
    return dict(causes_by_key)


def _parse_food(row: tuple[str, ...]) -> Noun:
    return Noun(row[1], row[2], "", row[3], row[4] if len(row) > 4 else "", frozenset({row[0]}))


def _read_groups(table: str) -> dict[str, tuple[Term, ...]]:
    groups: dict[str, tuple[Term, ...]] = defaultdict(tuple)
    for row in _read_rows(table):
        groups[row[0]] += (Term(row[1], row[2]),)
    return dict(groups)


def _read_rows(table: str) -> tuple[tuple[str, ...], ...]:
    return word_tables.read_rows(WORDS_FOLDER / f"{table}.txt")
