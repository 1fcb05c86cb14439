"""Excerpts: some sentences of a story, told as if nothing had been told before, with the places of all mentions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from meristem.samples.microworld import Entity, Fact, Mention, Person, Place, Story, Thing, Told, Town, tell
from meristem.samples.microworld.facts import Beat, Term

PRONOUNS = frozenset(
    {"she", "her", "herself", "he", "him", "his", "himself", "it", "there", "她", "他", "它", "自己", "那里"}
)  # fmt: skip
"""What stands for a name."""


@dataclass(frozen=True)
class Excerpt:
    """Sentences put together, and where each begins."""

    text: str
    told: tuple[Told, ...]
    starts: tuple[int, ...]
    language: str

    def mentions(self) -> Iterator[Mention]:
        """Every mention, by its place in the whole text."""
        for start, sentence in zip(self.starts, self.told, strict=True):
            for one in sentence.mentions:
                yield Mention(start + one.start, start + one.end, one.entity)

    def named(self) -> Iterator[Mention]:
        """Mentions by a name or a noun rather than a pronoun, without the possessive ending."""
        for one in self.mentions():
            text = self.text[one.start : one.end]
            if text.lower() not in PRONOUNS:
                yield replace(one, end=one.end - 2) if text.endswith("'s") else one

    @property
    def facts(self) -> Beat:
        """Everything it tells."""
        return tuple(fact for sentence in self.told for fact in sentence.facts)


def excerpt(of: Story, beats: Sequence[Beat], language: str, variant: int = 0) -> Excerpt:
    """These beats of a story in a language; another variant says the same in other words."""
    pace = tuple(of.pace[number % len(of.pace)] for number in range(len(beats)))
    told = tell(replace(of, beats=tuple(beats), pace=pace), language, variant)
    between = " " if language == "en" else ""
    text, starts = "", []
    for sentence in told:
        text += between if text else ""
        starts.append(len(text))
        text += sentence.text
    return Excerpt(text, told, tuple(starts), language)


def plain(beat: Beat) -> Beat:
    """A beat without the causes and purposes that are told after its events; an opinion keeps its cause."""
    return tuple(fact if fact.kind.startswith("judge") else replace(fact, why=None) for fact in beat)


def beats(of: Story, kinds: frozenset[str]) -> list[int]:
    """The numbers of the beats that tell nothing but facts of these kinds."""
    return [number for number, beat in enumerate(of.beats) if all(fact.kind in kinds for fact in beat)]


def entities(fact: Fact) -> Iterator[Entity]:
    """Who and what a fact is about."""
    roles: tuple[Entity | None, ...] = (fact.who, fact.whom, fact.what, fact.where, fact.town, fact.town_to)
    yield from (one for one in roles if one is not None)


def said(term: Term, language: str) -> str:
    """A word in a language."""
    return term.english if language == "en" else term.chinese


def noun(entity: Entity, language: str) -> str:
    """What an entity is called: a name, or a noun without its article."""
    return said(entity.name if isinstance(entity, Person | Town) else entity.noun, language)


def called(entity: Entity, language: str) -> str:
    """An entity out of any context: a name, or a noun with the article that its language wants."""
    word = noun(entity, language)
    return f"the {word}" if language == "en" and isinstance(entity, Thing | Place) else word


def at(place: Place, language: str) -> str:
    """At a place."""
    if language == "en":
        return f"{place.noun.preposition} the {place.noun.english}"
    return f"在{place.noun.chinese}{place.noun.locative}"


def sentence(text: str, language: str) -> str:
    """A clause as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:]}." if language == "en" else f"{text}。"
