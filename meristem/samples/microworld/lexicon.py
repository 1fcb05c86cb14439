"""The words of the world, read once from the plain tables in `words/`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meristem.samples.microworld.facts import Job, Noun, Spot, Term

WORDS = Path(__file__).parent / "words"
ANY = "any"


@dataclass(frozen=True)
class Name:
    """A person's name and the pronoun that goes with it."""

    term: Term
    pronoun: str


@dataclass(frozen=True)
class Relation:
    """How two people are related, and who of them can be the related one."""

    term: Term
    pronoun: str
    age: str

    def fits(self, pronoun: str, years: int) -> bool:
        """Whether someone with this pronoun, so many years older, can be called so."""
        wanted = {"older": years > 2, "younger": years < -2}.get(self.age, True)
        return wanted and self.pronoun in {pronoun, ANY}


@dataclass(frozen=True)
class Cause:
    """What an opinion rests on, and the opinions it can lead to."""

    term: Term
    opinions: tuple[Term, ...]


@dataclass(frozen=True)
class Lexicon:
    """Every table, ready to draw from."""

    names: tuple[Name, ...]
    towns: tuple[Term, ...]
    jobs: tuple[Job, ...]
    spots: dict[str, tuple[Spot, ...]]
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
def lexicon() -> Lexicon:
    """The lexicon of the package."""
    materials = {row[3]: Term(row[1], row[2]) for row in _rows("qualities") if row[0] == "material"}
    food = {kind: tuple(_food(row) for row in _rows("food") if row[0] == kind) for kind in ("dish", "produce")}
    times: dict[tuple[str, str], tuple[Term, ...]] = defaultdict(tuple)
    for when, part, english, chinese in _rows("times"):
        times[when, part] += (Term(english, chinese),)
    return Lexicon(
        names=tuple(Name(Term(english, chinese), pronoun) for english, chinese, pronoun in _rows("names")),
        towns=tuple(Term(english, chinese) for english, chinese in _rows("towns")),
        jobs=tuple(Job(row[0], row[1], act=Term(row[2], row[3])) for row in _rows("jobs")),
        spots=_spots(),
        things=tuple(_thing(row, materials) for row in _rows("things")),
        qualities=_grouped("qualities"),
        dishes=food["dish"],
        produce=food["produce"],
        relations=tuple(Relation(Term(row[0], row[1]), row[2], row[3]) for row in _rows("relations")),
        phrases=_grouped("phrases"),
        reasons=_grouped("reasons"),
        causes=_causes(),
        scenes=tuple(Term(row[2], row[3], f"{row[0]}/{row[1]}") for row in _rows("scenes")),
        times=dict(times),
    )


@cache
def templates(language: str) -> dict[str, tuple[str, ...]]:
    """The clauses a language has for each kind of fact."""
    found: dict[str, tuple[str, ...]] = {}
    kind = ""
    for line in _lines(f"clauses-{language}"):
        if line.startswith("["):
            kind = line.strip("[]")
            found[kind] = ()
        else:
            found[kind] += (line,)
    return found


def _thing(row: list[str], materials: dict[str, Term]) -> Noun:
    english, chinese, measure, kinds, made = row[:5]
    sense = f"{english}/{row[5]}" if len(row) > 5 else ""
    stuff = tuple(materials[name] for name in made.split() if name != "-")
    return Noun(english, chinese, sense, measure, "", frozenset(kinds.split()), stuff)


def _spots() -> dict[str, tuple[Spot, ...]]:
    """Sorts of place by what they are good for; all of them under no use at all."""
    found: dict[str, tuple[Spot, ...]] = defaultdict(tuple)
    for english, chinese, preposition, locative, uses in _rows("places"):
        spot = Spot(english, chinese, "", preposition, locative.strip("-"), frozenset(uses.split()))
        for use in ("", *uses.split()):
            found[use] += (spot,)
    return dict(found)


def _causes() -> dict[str, tuple[Cause, ...]]:
    """Causes by target and polarity, each with the opinions it supports."""
    opinions = {key: {term.english: term for term in terms} for key, terms in _grouped("opinions").items()}
    found: dict[str, tuple[Cause, ...]] = defaultdict(tuple)
    for key, english, chinese, fitting in _rows("causes"):
        found[key] += (Cause(Term(english, chinese), tuple(opinions[key][word] for word in fitting.split(", "))),)
    return dict(found)


def _food(row: list[str]) -> Noun:
    return Noun(row[1], row[2], "", row[3], row[4] if len(row) > 4 else "", frozenset({row[0]}))


def _grouped(table: str) -> dict[str, tuple[Term, ...]]:
    found: dict[str, tuple[Term, ...]] = defaultdict(tuple)
    for row in _rows(table):
        found[row[0]] += (Term(row[1], row[2]),)
    return dict(found)


def _rows(table: str) -> Iterator[list[str]]:
    for line in _lines(table):
        yield [cell.strip() for cell in line.split("|")]


def _lines(table: str) -> Iterator[str]:
    for line in (WORDS / f"{table}.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()
