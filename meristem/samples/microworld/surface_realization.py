"""Surface realization: facts to sentences with templates, mentions and pronouns, shared by all languages."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import (
    Beat,
    Entity,
    Fact,
    Location,
    Mention,
    Person,
    RealizedSentence,
    StoryTime,
    Term,
    Thing,
)
from meristem.samples.microworld.lexicon import clause_templates, load_lexicon

TemplatePieces: TypeAlias = tuple[tuple[str, str], ...]  # literal text, then the slot after it ("" at the end)
SlotWriter: TypeAlias = Callable[[Any, Fact], None]

TIMELESS = frozenset(
    {
        "introduce",
        "introduce_age",
        "introduce_years",
        "relate",
        "relate_age",
        "own",
        "carry",
        "hobby_of",
        "likes",
        "dislikes",
        "distance",
        "happy",
        "sad",
        "plan",
        "located",
        "owned",
        "held",
        "is_at",
        "judge_what",
        "judge_where",
        "judge_whom",
        "judge_dish",
    }
)
JOIN_SHARE = 0.3  # share of events at an unchanged time that begin with "then" or the like
SLOT_PATTERN = re.compile(r"([^{]*)(?:\{([^}]+)\})?")


@cache
def split_template(template: str) -> TemplatePieces:
    """A template split at its slots."""
    return tuple((literal, slot or "") for literal, slot in SLOT_PATTERN.findall(template) if literal or slot)


@dataclass(frozen=True)
class ClauseTemplates:
    """Templates of one kind of fact: all, those that begin with the subject, and the latter without it."""

    all_templates: tuple[TemplatePieces, ...]
    subject_first: tuple[TemplatePieces, ...]
    without_subject: tuple[TemplatePieces, ...]


@cache
def load_clauses(language: str) -> dict[str, ClauseTemplates]:
    """The templates of every kind in a language, split once."""
    return {kind: _split_clauses(texts) for kind, texts in clause_templates(language).items()}


def _split_clauses(texts: tuple[str, ...]) -> ClauseTemplates:
    single_subject = re.compile(r"\{who\}(?! and |, )")  # with "{who} and {whom}" a second verb would be plural
    subject_first = [text for text in texts if single_subject.match(text) and not re.search(r", who| and ", text)]
    without_subject = [text.removeprefix("{who}").lstrip() for text in subject_first]
    return ClauseTemplates(
        tuple(map(split_template, texts)),
        tuple(map(split_template, subject_first)),
        tuple(map(split_template, without_subject)),
    )


class SurfaceRealizer(ABC):
    """Realizes beats one after another and tracks what the reader knows."""

    language: ClassVar[str]
    slots: ClassVar[dict[str, SlotWriter]]

    def __init__(self, rng: BlockRandom, weekday: int) -> None:
        self.rng, self.weekday = rng, weekday
        self.time_draw = 0.0  # in [0, 1): chooses the time phrase of this sentence
        self.clauses = load_clauses(self.language)
        self.known_ids: set[int] = set()
        self.subject: Person | None = None
        self.pronoun_run = 0  # consecutive sentences whose subject was a pronoun
        self.story_time: StoryTime | None = None
        self.days_passed = 0  # since the previous event
        self.previous_entities: dict[int, Entity] = {}  # mentioned in the previous sentence
        self.sentence_entities: dict[int, Entity] = {}  # mentioned in this sentence so far
        self.text = ""
        self.mentions: list[Mention] = []

    def realize(self, beat: Beat, time_draw: float) -> RealizedSentence:
        """One sentence that expresses the beat."""
        self.text, self.mentions, self.time_draw = "", [], time_draw
        self.compose(beat)
        self.previous_entities, self.sentence_entities = self.sentence_entities, {}
        self.subject = beat[-1].who
        return RealizedSentence(self.text[:1].upper() + self.text[1:], beat, self.language, tuple(self.mentions))

    @abstractmethod
    def compose(self, beat: Beat) -> None:
        """Write the text of one beat."""

    def write(self, text: str) -> None:
        """Add text to the sentence."""
        self.text += text

    def write_mention(self, text: str, entity: Entity) -> None:
        """Add text that refers to an entity."""
        start = len(self.text)
        self.text += text
        self.record_mention(start, entity)

    def record_mention(self, start: int, entity: Entity) -> None:
        """Record that the text since `start` refers to an entity."""
        self.mentions.append(Mention(start, len(self.text), entity))
        self.sentence_entities[entity.id] = entity
        self.known_ids.add(entity.id)

    def fill_template(self, template: TemplatePieces, fact: Fact) -> None:
        """Write a template with its slots filled from the fact."""
        slots = self.slots
        for literal, slot in template:
            self.text += literal
            if slot:
                slots[slot](self, fact)

    def write_phrase(self, text: str, fact: Fact) -> None:
        """Write a phrase that may contain slots."""
        if "{" in text:
            self.fill_template(split_template(text), fact)
        else:
            self.write(text)

    def is_unambiguous(self, entity: Person | Thing) -> bool:
        """Whether a pronoun for the entity is unambiguous: it was just mentioned, and nothing similar was."""
        if entity.id not in self.previous_entities and entity.id not in self.sentence_entities:
            return False
        entities = (*self.previous_entities.values(), *self.sentence_entities.values())
        if isinstance(entity, Thing):
            return not any(isinstance(other, Thing) and other.id != entity.id for other in entities)
        return not any(
            isinstance(other, Person) and other.pronoun == entity.pronoun and other.id != entity.id
            for other in entities
        )

    def use_there(self, location: Location) -> bool:
        """Whether to say "there": always for a place of this sentence, sometimes for one of the previous sentence."""
        last = next((other for other in reversed(self.previous_entities.values()) if isinstance(other, Location)), None)
        return location.id in self.sentence_entities or (
            last is not None and last.id == location.id and self.rng.chance(0.6)
        )

    def use_pronoun(self, person: Person) -> bool:
        """Whether to use a pronoun for the subject: it continues from the previous sentence, but not for too long."""
        is_continued = self.subject is not None and self.subject.id == person.id and self.pronoun_run < 3
        chosen_pronoun = is_continued and self.is_unambiguous(person) and self.rng.chance(0.6)
        self.pronoun_run = self.pronoun_run + 1 if chosen_pronoun else 0
        return chosen_pronoun

    def time_phrase(self, fact: Fact) -> Term | None:
        """The time phrase of an event, if time has passed or to connect it with the previous one."""
        if fact.kind in TIMELESS:
            return None
        previous, self.story_time = self.story_time, fact.moment
        self.days_passed = fact.moment.day - previous.day if previous else 0
        part, draw = str(fact.moment.part), self.time_draw
        if previous is None:
            key = ("opening", part)
        elif self.days_passed:
            key = ("next" if self.days_passed == 1 else "later", part)
        elif fact.moment.part != previous.part:
            key = ("same", part)
        elif draw < JOIN_SHARE:
            key, draw = ("then", "-"), draw / JOIN_SHARE
        else:
            return None
        choices = load_lexicon().times[key]
        return choices[int(draw * len(choices))]

    def weekday_of(self, fact: Fact) -> Term:
        """The weekday of a fact."""
        return load_lexicon().times["weekday", str((self.weekday + fact.moment.day) % 7)][0]
