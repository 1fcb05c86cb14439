"""What is true in the world: entities, and facts as a kind with its roles, in no language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Language: TypeAlias = str  # "en" or "zh"


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase with its translation; `sense` tells apart words spelled alike, as in `bank/river`."""

    english: str
    chinese: str
    sense: str = ""


@dataclass(frozen=True, slots=True)
class Noun(Term):
    """A countable noun: its Chinese measure word, its English plural, what sort of thing it names."""

    measure: str = "个"
    plural: str = ""
    kinds: frozenset[str] = frozenset()
    materials: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Spot(Term):
    """A sort of place: English preposition, Chinese locative, what it is good for."""

    preposition: str = "in"
    locative: str = "里"
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Job(Term):
    """A profession and a typical piece of its work."""

    act: Term = Term("", "")


@dataclass(frozen=True, slots=True)
class Person:
    """Someone with a name, an age and a profession."""

    id: int
    name: Term
    pronoun: str
    age: int
    job: Job
    hobby: Term


@dataclass(frozen=True, slots=True)
class Town:
    """A town or village."""

    id: int
    name: Term


@dataclass(frozen=True, slots=True)
class Place:
    """One place in a town."""

    id: int
    noun: Spot
    town: Town


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that can be owned, moved and described."""

    id: int
    noun: Noun
    colour: Term | None = None
    quality: Term | None = None
    material: Term | None = None


Entity: TypeAlias = Person | Town | Place | Thing


@dataclass(frozen=True, slots=True)
class Moment:
    """A day of the story and a part of that day: morning, noon, afternoon, evening."""

    day: int = 0
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that is or happens: a kind and the roles that kind has."""

    kind: str
    moment: Moment
    who: Person | None = None
    whom: Person | None = None
    what: Thing | None = None
    whose: Person | None = None
    where: Place | None = None
    town: Town | None = None
    town_to: Town | None = None
    term: Term | None = None
    why: Term | None = None
    count: int = 0
    polarity: int = 0


Beat: TypeAlias = tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """Facts in the order of telling; a beat is what one sentence says, whatever the language."""

    seed: int
    number: int
    weekday: int
    beats: tuple[Beat, ...]
    pace: tuple[float, ...]
    """One number per beat that chooses its time words, alike in every language."""

    @property
    def facts(self) -> Beat:
        """Every fact of the story in order."""
        return tuple(fact for beat in self.beats for fact in beat)


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters start to end of a sentence that stand for an entity."""

    start: int
    end: int
    entity: Entity


@dataclass(frozen=True, slots=True)
class Told:
    """One sentence, the facts it tells, and where it names their entities."""

    text: str
    facts: Beat
    language: Language
    mentions: tuple[Mention, ...]
