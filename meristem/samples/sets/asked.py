"""Questions about a fact, and where the passage that tells it has the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from meristem.samples.microworld import Fact
from meristem.samples.microworld.chinese import counted
from meristem.samples.microworld.chinese import number as chinese_number
from meristem.samples.microworld.english import number as english_number
from meristem.samples.microworld.telling import pieces
from meristem.samples.sets.excerpt import Excerpt, said
from meristem.samples.sets.filled import filled
from meristem.samples.sets.tables import groups

ENTITIES = frozenset({"who", "whom", "what", "where", "town", "town_to"})
ROLES = {"place": "where", "adjective": "term", "goods": "term"}
"""What slots with a name of their own are filled from."""
BECAUSE = {"en": re.compile(r"(?:because|, for|, since) (.*)\.$"), "zh": re.compile("，因为(.*)。$")}
LIKE = {"introduce_age": "introduce", "introduce_years": "introduce", "relate_age": "relate"}
"""Kinds that tell what another kind tells, and more."""


@dataclass(frozen=True)
class Question:
    """A way to ask for one role of a fact."""

    fact: Fact
    role: str
    template: str

    def text(self, language: str) -> str:
        """The question, everybody and everything called by name."""
        return filled(self.template, self.fact, language)

    @property
    def entities(self) -> frozenset[int]:
        """Whom and what the question names."""
        slots = {ROLES.get(slot, slot) for _, slot in pieces(self.template)} & ENTITIES
        return frozenset(getattr(self.fact, role).id for role in slots)

    def key(self, fact: Fact) -> tuple[object, ...]:
        """What the question says of a fact; two facts of one key would make it unclear."""
        return tuple(_compared(fact, slot) for _, slot in pieces(self.template) if slot)


def questions(fact: Fact, language: str) -> Iterator[Question]:
    """Every way to ask about a fact."""
    for kind in dict.fromkeys((fact.kind, _family(fact))):
        for heading, templates in groups("asked", language).items():
            about, role = heading.split()
            if about == kind:
                yield from (Question(fact, role, template) for template in templates)


def clear(question: Question, told: Excerpt) -> bool:
    """Whether only one of the told facts is what the question can mean."""
    kind, key = _family(question.fact), question.key(question.fact)
    return sum(_family(fact) == kind and question.key(fact) == key for fact in told.facts) == 1


def answer(question: Question, told: Excerpt) -> tuple[int, int] | None:
    """Where the answer stands: in the fact's own sentence, or where what a pronoun there means was named last."""
    number = next((n for n, sentence in enumerate(told.told) if question.fact in sentence.facts), None)
    if number is None:
        return None
    start, sentence = told.starts[number], told.told[number]
    if question.role in ENTITIES:
        wanted, stop = getattr(question.fact, question.role), start + len(sentence.text)
        found = [one for one in told.named() if one.entity.id == wanted.id and one.end <= stop]
        here = [one for one in found if one.start >= start]
        chosen = here[0] if here else found[-1] if found else None
        return None if chosen is None else (chosen.start, chosen.end)
    if question.role == "why":
        because = BECAUSE[told.language].search(sentence.text)
        return None if because is None else (start + because.start(1), start + because.end(1))
    text = _literal(question.fact, question.role, told.language)
    edge = r"\b" if told.language == "en" else ""
    spots = [spot.start() for spot in re.finditer(f"{edge}{re.escape(text)}{edge}", sentence.text)]
    return (start + spots[0], start + spots[0] + len(text)) if len(spots) == 1 else None


def _family(fact: Fact) -> str:
    return LIKE.get(fact.kind, fact.kind)


def _compared(fact: Fact, slot: str) -> object:
    role = ROLES.get(slot, slot)
    value = getattr(fact, role)
    return value.id if role in ENTITIES and value is not None else value


def _literal(fact: Fact, role: str, language: str) -> str:
    """The words of an answer that is no person, place or thing."""
    english = language == "en"
    if role in {"job", "job_whom"}:
        person = fact.who if role == "job" else fact.whom
        assert person is not None
        return said(person.job, language)
    if role in {"age", "age_whom"}:
        person = fact.who if role == "age" else fact.whom
        assert person is not None
        return english_number(person.age) if english else chinese_number(person.age)
    if role == "count":
        return english_number(fact.count) if english else counted(fact.count, "")
    assert fact.term is not None
    return said(fact.term, language)
