"""Surface realization: facts to sentences with templates, mentions and pronouns, shared by all languages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.clause_templates import TemplatePieces, load_clauses, split_template
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
from meristem.samples.microworld.lexicon import load_lexicon

SlotWriter: TypeAlias = Callable[[Any, Fact], None]

_TIMELESS = (
    "introduce introduce_age introduce_years relate relate_age own carry hobby_of likes dislikes distance happy sad "
    "plan located owned held is_at judge_what judge_where judge_whom judge_dish"
)
TIMELESS = frozenset(_TIMELESS.split())
"""Kinds of facts whose sentences have no time phrase."""
PLAINLY_JOINED = frozenset({"happy", "sad", "dislikes", "plan"})
"""Kinds of facts that follow another one without "then"."""
JOIN_SHARE = 0.3  # share of events at an unchanged time that begin with "then" or the like


class SurfaceRealizer(ABC):
    """Realizes beats one after another and tracks what the reader knows."""

    language: ClassVar[str]
    slots: ClassVar[dict[str, SlotWriter]]
    after_opener: ClassVar[str]
    """Text between a time phrase and the sentence."""
    opener_moves_subject: ClassVar[bool]
    """Whether a sentence with a time phrase must go on with its subject."""
    joins: ClassVar[tuple[str, ...]]
    """Joins of two clauses with one subject, the plain one first."""
    clause_join: ClassVar[str]
    """The join of two clauses with subjects of their own."""
    before_reason: ClassVar[str]
    full_stop: ClassVar[str]
    subject_pronouns: ClassVar[dict[str, str]]
    object_pronouns: ClassVar[dict[str, str]]
    thing_pronoun: ClassVar[str]
    thing_pronoun_share: ClassVar[float]
    """How often a thing that a pronoun can name is named by it."""

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

    def compose(self, beat: Beat) -> None:
        """Write the text of one beat: a time phrase, one or two clauses, and a reason."""
        first, *others = beat
        opener = self.time_phrase(first)
        if opener is not None:
            weekday, days = self.weekday_of(first).text(self.language), self.count_text(self.days_passed)
            text = opener.text(self.language).replace("{weekday}", weekday).replace("{days}", days)
            self.write(text + self.after_opener)
        is_moved = opener is not None and self.opener_moves_subject
        self._write_clause(first, subject_first=bool(is_moved or others or first.why))
        for fact in others:
            self._write_joined(first, fact)
        last = beat[-1]
        if last.why is not None and not last.kind.startswith("judge"):
            self.write(self.before_reason)
            self.write_phrase(last.why.text(self.language), last)
        self.write(self.full_stop)

    def _write_clause(self, fact: Fact, subject_first: bool) -> None:
        templates = self.clauses[fact.kind]
        choices = templates.subject_first if subject_first and templates.subject_first else templates.all_templates
        self.fill_template(self.rng.choice(choices), fact)

    def _write_joined(self, previous: Fact, fact: Fact) -> None:
        """A further clause; without its subject if that is the same."""
        continuations = self.clauses[fact.kind].without_subject
        is_same_subject = previous.who is not None and fact.who is previous.who
        if is_same_subject and continuations and self.clauses[previous.kind].subject_first:
            self.write(self.joins[0] if fact.kind in PLAINLY_JOINED else self.rng.choice(self.joins))
            self.fill_template(self.rng.choice(continuations), fact)
        else:
            self.write(self.clause_join)
            self._write_clause(fact, subject_first=True)

    @abstractmethod
    def number_text(self, value: int) -> str:
        """A number below a thousand in words."""

    @abstractmethod
    def count_text(self, value: int) -> str:
        """A number of something, in words."""

    @abstractmethod
    def write_location_name(self, location: Location) -> None:
        """Write a place, sometimes with its town when it is new."""

    @abstractmethod
    def write_location(self, fact: Fact) -> None:
        """Write where a fact happens, or "there"."""

    @abstractmethod
    def write_full_thing(self, fact: Fact) -> None:
        """Write the thing: described when new, with an article or its owner when known."""

    @abstractmethod
    def write_possessor(self, fact: Fact) -> None:
        """Write the subject as a possessor."""

    @abstractmethod
    def write_counted_produce(self, fact: Fact) -> None:
        """Write a number of items of produce."""

    def write_person(self, person: Person, pronoun: str | None) -> None:
        """Write a person by a pronoun or by name."""
        self.write_mention(pronoun or person.name.text(self.language), person)

    def write_subject(self, fact: Fact) -> None:
        """Write the subject."""
        assert fact.who is not None
        self.write_person(fact.who, self.subject_pronouns[fact.who.pronoun] if self.use_pronoun(fact.who) else None)

    def write_other_person(self, fact: Fact) -> None:
        """Write the other person, as an object or, where a template begins with it, by name."""
        assert fact.whom is not None
        is_object = fact.who is not None and fact.who.id in self.sentence_entities
        by_pronoun = is_object and self.is_unambiguous(fact.whom) and self.rng.chance(0.5)
        self.write_person(fact.whom, self.object_pronouns[fact.whom.pronoun] if by_pronoun else None)

    def write_thing(self, fact: Fact) -> None:
        """Write the thing, by a pronoun where it is unambiguous."""
        thing = fact.what
        assert thing is not None
        can_use_pronoun = thing.id in self.known_ids and self.is_unambiguous(thing)
        if can_use_pronoun and self.rng.chance(self.thing_pronoun_share):
            self.write_mention(self.thing_pronoun, thing)
        else:
            self.write_full_thing(fact)

    def write_place(self, fact: Fact) -> None:
        """Write the place of a fact."""
        assert fact.where is not None
        self.write_location_name(fact.where)

    def write_term(self, fact: Fact) -> None:
        """Write the term of the fact."""
        assert fact.term is not None
        self.write_phrase(fact.term.text(self.language), fact)

    def write_cause(self, fact: Fact) -> None:
        """Write the cause of an opinion."""
        assert fact.why is not None
        self.write_phrase(fact.why.text(self.language), fact)

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
