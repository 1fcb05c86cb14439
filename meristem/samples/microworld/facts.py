"""Data model of the microworld: entities, and facts as a kind with roles, independent of language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Language: TypeAlias = str  # "en" or "zh"


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase with its translation; `sense` distinguishes homographs, as in `bank/river`."""

    english: str
    chinese: str
    sense: str = ""

    def text(self, language: Language) -> str:
        """The word or phrase in a language."""
        return self.english if language == "en" else self.chinese


@dataclass(frozen=True, slots=True)
class Noun(Term):
    """A countable noun with its Chinese measure word, English plural and semantic kinds."""

    measure: str = "个"
    plural: str = ""
    kinds: frozenset[str] = frozenset()
    materials: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceNoun(Term):
    """A type of place: English preposition, Chinese locative, and its uses."""

    preposition: str = "in"
    locative: str = "里"
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JobNoun(Term):
    """A profession and a typical activity."""

    act: Term = Term("", "")


@dataclass(frozen=True, slots=True)
class Person:
    """A person with a name, an age and a profession."""

    id: int
    name: Term
    pronoun: str
    age: int
    job: JobNoun
    hobby: Term


@dataclass(frozen=True, slots=True)
class Town:
    """A town or village."""

    id: int
    name: Term


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a town."""

    id: int
    noun: PlaceNoun
    town: Town


@dataclass(frozen=True, slots=True)
class Thing:
    """An object that can be owned, moved and described."""

    id: int
    noun: Noun
    colour: Term | None = None
    quality: Term | None = None
    material: Term | None = None


Entity: TypeAlias = Person | Town | Location | Thing


@dataclass(frozen=True, slots=True)
class StoryTime:
    """A day of the story and a part of that day: morning, noon, afternoon, evening."""

    day: int = 0
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A state or event: a kind and the roles of that kind."""

    kind: str
    moment: StoryTime
    who: Person | None = None
    whom: Person | None = None
    what: Thing | None = None
    whose: Person | None = None
    where: Location | None = None
    town: Town | None = None
    town_to: Town | None = None
    term: Term | None = None
    why: Term | None = None
    count: int = 0
    polarity: int = 0


Beat: TypeAlias = tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """Facts in narrative order; a beat is the content of one sentence, in any language."""

    seed: int
    number: int
    weekday: int
    beats: tuple[Beat, ...]
    time_draws: tuple[float, ...]
    """One random number per beat that chooses its time phrase, the same in every language."""

    @property
    def facts(self) -> Beat:
        """Every fact of the story in order."""
        return tuple(fact for beat in self.beats for fact in beat)


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters start to end of a sentence that refer to an entity."""

    start: int
    end: int
    entity: Entity


@dataclass(frozen=True, slots=True)
class RealizedSentence:
    """One sentence, the facts it expresses, and the mentions of their entities."""

    text: str
    facts: Beat
    language: Language
    mentions: tuple[Mention, ...]
