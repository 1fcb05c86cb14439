"""Telling facts as sentences: what all languages share, that is templates, mentions and who may be a pronoun."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.facts import Beat, Entity, Fact, Mention, Moment, Person, Place, Term, Thing, Told
from meristem.samples.microworld.lexicon import lexicon, templates

Pieces: TypeAlias = tuple[tuple[str, str], ...]  # literal text, then the slot after it ("" at the end)
Slot: TypeAlias = Callable[[Any, Fact], None]

TIMELESS = frozenset(
    {"introduce", "introduce_age", "introduce_years", "relate", "relate_age", "own", "carry", "hobby_of", "likes",
     "dislikes", "distance", "happy", "sad", "plan", "located", "owned", "held", "is_at", "judge_what", "judge_where",
     "judge_whom", "judge_dish"}
)
JOINED = 0.3  # share of events of the same hour that open with "then" or the like
SLOT = re.compile(r"([^{]*)(?:\{([^}]+)\})?")


@cache
def pieces(template: str) -> Pieces:
    """A template cut at its slots."""
    return tuple((literal, slot or "") for literal, slot in SLOT.findall(template) if literal or slot)


@dataclass(frozen=True)
class Clauses:
    """The ways to tell one kind of fact: all, those led by their subject, and these without it."""

    every: tuple[Pieces, ...]
    led: tuple[Pieces, ...]
    rest: tuple[Pieces, ...]


@cache
def clauses(language: str) -> dict[str, Clauses]:
    """Every kind's clauses in a language, cut once."""
    return {kind: _cut(texts) for kind, texts in templates(language).items()}


def _cut(texts: tuple[str, ...]) -> Clauses:
    single = re.compile(r"\{who\}(?! and |, )")  # with "{who} and {whom}" a second verb would be plural
    led = [text for text in texts if single.match(text) and not re.search(r", who| and ", text)]
    rest = [text.removeprefix("{who}").lstrip() for text in led]
    return Clauses(tuple(map(pieces, texts)), tuple(map(pieces, led)), tuple(map(pieces, rest)))


class Teller(ABC):
    """Tells beats one after another and remembers what the reader knows by then."""

    language: ClassVar[str]
    slots: ClassVar[dict[str, Slot]]

    def __init__(self, dice: Dice, weekday: int) -> None:
        self.dice, self.weekday = dice, weekday
        self.pace = 0.0  # in [0, 1): chooses the time words of this sentence
        self.clauses = clauses(self.language)
        self.known: set[int] = set()
        self.subject: Person | None = None
        self.pronouns = 0  # sentences in a row whose subject was a pronoun
        self.moment: Moment | None = None
        self.days = 0  # since the moment before
        self.recent: dict[int, Entity] = {}  # who and what the previous sentence named
        self.said: dict[int, Entity] = {}  # and this one so far
        self.text = ""
        self.mentions: list[Mention] = []

    def sentence(self, beat: Beat, pace: float) -> Told:
        """One sentence that tells the beat."""
        self.text, self.mentions, self.pace = "", [], pace
        self.compose(beat)
        self.recent, self.said = self.said, {}
        self.subject = beat[-1].who
        return Told(self.text[:1].upper() + self.text[1:], beat, self.language, tuple(self.mentions))

    @abstractmethod
    def compose(self, beat: Beat) -> None:
        """Write the words of one beat."""

    def write(self, text: str) -> None:
        """Add text to the sentence."""
        self.text += text

    def name(self, text: str, entity: Entity) -> None:
        """Add text that stands for an entity."""
        start = len(self.text)
        self.text += text
        self.note(start, entity)

    def note(self, start: int, entity: Entity) -> None:
        """Record that everything written since `start` stands for an entity."""
        self.mentions.append(Mention(start, len(self.text), entity))
        self.said[entity.id] = entity
        self.known.add(entity.id)

    def fill(self, template: Pieces, fact: Fact) -> None:
        """Write a template, its slots told from the fact."""
        slots = self.slots
        for literal, slot in template:
            self.text += literal
            if slot:
                slots[slot](self, fact)

    def phrase(self, text: str, fact: Fact) -> None:
        """Write a phrase that may have slots of its own."""
        if "{" in text:
            self.fill(pieces(text), fact)
        else:
            self.write(text)

    def clear(self, entity: Person | Thing) -> bool:
        """Whether a pronoun for the entity could be nothing else: it was just named, and nothing like it."""
        if entity.id not in self.recent and entity.id not in self.said:
            return False
        named = (*self.recent.values(), *self.said.values())
        if isinstance(entity, Thing):
            return not any(isinstance(other, Thing) and other.id != entity.id for other in named)
        return not any(
            isinstance(other, Person) and other.pronoun == entity.pronoun and other.id != entity.id for other in named
        )

    def is_here(self, place: Place) -> bool:
        """Whether to say "there": always for a place this sentence named, at times for one the last one did."""
        last = next((other for other in reversed(self.recent.values()) if isinstance(other, Place)), None)
        return place.id in self.said or (last is not None and last.id == place.id and self.dice.chance(0.6))

    def may_be_pronoun(self, person: Person) -> bool:
        """Whether to call the subject by a pronoun: it goes on from the last sentence, and not for too long."""
        wanted = self.subject is not None and self.subject.id == person.id and self.pronouns < 3
        chosen = wanted and self.clear(person) and self.dice.chance(0.6)
        self.pronouns = self.pronouns + 1 if chosen else 0
        return chosen

    def opener(self, fact: Fact) -> Term | None:
        """The time words of an event, when time has passed or to join it to what came before."""
        if fact.kind in TIMELESS:
            return None
        before, self.moment = self.moment, fact.moment
        self.days = fact.moment.day - before.day if before else 0
        part, pace = str(fact.moment.part), self.pace
        if before is None:
            key = ("opening", part)
        elif self.days:
            key = ("next" if self.days == 1 else "later", part)
        elif fact.moment.part != before.part:
            key = ("same", part)
        elif pace < JOINED:
            key, pace = ("then", "-"), pace / JOINED
        else:
            return None
        choices = lexicon().times[key]
        return choices[int(pace * len(choices))]

    def weekday_of(self, fact: Fact) -> Term:
        """The day of the week a fact falls on."""
        return lexicon().times["weekday", str((self.weekday + fact.moment.day) % 7)][0]
