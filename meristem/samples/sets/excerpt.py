"""Excerpts: some sentences of a story, realized as if they were its beginning, with all mentions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from meristem.samples.microworld import realize_story
from meristem.samples.microworld.facts import (
    Beat,
    Entity,
    Location,
    Mention,
    Person,
    RealizedSentence,
    Story,
    Thing,
    Town,
)

PRONOUNS = frozenset(
    {"she", "her", "herself", "he", "him", "his", "himself", "it", "there", "她", "他", "它", "自己", "那里"}
)  # fmt: skip
"""Words that refer to an entity without naming it."""


@dataclass(frozen=True)
class Excerpt:
    """Consecutive sentences with their start offsets."""

    text: str
    sentences: tuple[RealizedSentence, ...]
    starts: tuple[int, ...]
    language: str

    def mentions(self) -> Iterator[Mention]:
        """Every mention, by its offset in the whole text."""
        for start, sentence in zip(self.starts, self.sentences, strict=True):
            for mention in sentence.mentions:
                yield Mention(start + mention.start, start + mention.end, mention.entity)

    def named_mentions(self) -> Iterator[Mention]:
        """Mentions by a name or a noun rather than a pronoun, without the possessive ending."""
        for mention in self.mentions():
            text = self.text[mention.start : mention.end]
            if text.lower() not in PRONOUNS:
                yield replace(mention, end=mention.end - 2) if text.endswith("'s") else mention

    @property
    def facts(self) -> Beat:
        """All facts that it expresses."""
        return tuple(fact for sentence in self.sentences for fact in sentence.facts)


def realize_excerpt(story: Story, beats: Sequence[Beat], language: str, variant: int = 0) -> Excerpt:
    """These beats of a story in a language; another variant expresses the same in other words."""
    time_draws = tuple(story.time_draws[number % len(story.time_draws)] for number in range(len(beats)))
    sentences = realize_story(replace(story, beats=tuple(beats), time_draws=time_draws), language, variant)
    separator = " " if language == "en" else ""
    text, starts = "", []
    for sentence in sentences:
        text += separator if text else ""
        starts.append(len(text))
        text += sentence.text
    return Excerpt(text, sentences, tuple(starts), language)


def without_reasons(beat: Beat) -> Beat:
    """A beat without the causes and purposes of its events; an opinion keeps its cause."""
    return tuple(fact if fact.kind.startswith("judge") else replace(fact, why=None) for fact in beat)


def beats_of_kinds(story: Story, kinds: frozenset[str]) -> list[int]:
    """Indices of the beats with only facts of these kinds."""
    return [number for number, beat in enumerate(story.beats) if all(fact.kind in kinds for fact in beat)]


def entity_noun(entity: Entity, language: str) -> str:
    """The name of an entity, or its noun without article."""
    return (entity.name if isinstance(entity, Person | Town) else entity.noun).text(language)


def entity_phrase(entity: Entity, language: str) -> str:
    """An entity out of context: a name, or a noun with its article."""
    word = entity_noun(entity, language)
    return f"the {word}" if language == "en" and isinstance(entity, Thing | Location) else word


def place_phrase(location: Location, language: str) -> str:
    """A place with its preposition or locative."""
    if language == "en":
        return f"{location.noun.preposition} the {location.noun.english}"
    return f"在{location.noun.chinese}{location.noun.locative}"


def format_sentence(text: str, language: str) -> str:
    """A clause as a complete sentence."""
    return f"{text[:1].upper()}{text[1:]}." if language == "en" else f"{text}。"
