"""Questions about facts, and the answer spans in a passage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from meristem.samples.microworld.chinese import chinese_number, with_measure_word
from meristem.samples.microworld.clause_templates import split_template
from meristem.samples.microworld.english import english_number
from meristem.samples.microworld.facts import Fact
from meristem.samples.sets.excerpt import Excerpt
from meristem.samples.sets.template_filling import fill_template
from meristem.samples.sets.template_tables import read_groups

ENTITY_ROLES = frozenset({"who", "whom", "what", "where", "town", "town_to"})
SLOT_ROLES = {"place": "where", "adjective": "term", "goods": "term"}
"""The roles of slots that have another name."""
BECAUSE_PATTERNS = {"en": re.compile(r"(?:because|, for|, since) (.*)\.$"), "zh": re.compile("，因为(.*)。$")}
BASE_KINDS = {"introduce_age": "introduce", "introduce_years": "introduce", "relate_age": "relate"}
"""Kinds that express another kind and more."""


@dataclass(frozen=True)
class Question:
    """A question for one role of a fact."""

    fact: Fact
    role: str
    template: str

    def text(self, language: str) -> str:
        """The question, with names instead of pronouns."""
        return fill_template(self.template, self.fact, language)

    @property
    def entities(self) -> frozenset[int]:
        """Ids of the entities that the question names."""
        slots = {SLOT_ROLES.get(slot, slot) for _, slot in split_template(self.template)} & ENTITY_ROLES
        return frozenset(getattr(self.fact, role).id for role in slots)

    def key(self, fact: Fact) -> tuple[object, ...]:
        """What the question says of a fact; it is ambiguous if two facts have the same key."""
        return tuple(_slot_value(fact, slot) for _, slot in split_template(self.template) if slot)


def iter_questions(fact: Fact, language: str) -> Iterator[Question]:
    """Every question about a fact."""
    for kind in dict.fromkeys((fact.kind, _base_kind(fact))):
        for heading, templates in read_groups("asked", language).items():
            template_kind, role = heading.split()
            if template_kind == kind:
                yield from (Question(fact, role, template) for template in templates)


def unambiguous_questions(fact: Fact, passage: Excerpt) -> list[Question]:
    """The questions about a fact that can refer to no other fact of a passage."""
    return [question for question in iter_questions(fact, passage.language) if is_unambiguous(question, passage)]


def is_unambiguous(question: Question, passage: Excerpt) -> bool:
    """Whether the question can refer to only one fact of the passage."""
    kind, key = _base_kind(question.fact), question.key(question.fact)
    return sum(_base_kind(fact) == kind and question.key(fact) == key for fact in passage.facts) == 1


def find_answer(question: Question, passage: Excerpt) -> tuple[int, int] | None:
    """The answer span: in the fact's own sentence, or the last named mention of what a pronoun there refers to."""
    sentence_index = next(
        (index for index, sentence in enumerate(passage.sentences) if question.fact in sentence.facts), None
    )
    if sentence_index is None:
        return None
    start, sentence = passage.starts[sentence_index], passage.sentences[sentence_index]
    if question.role in ENTITY_ROLES:
        entity, stop = getattr(question.fact, question.role), start + len(sentence.text)
        of_entity = [mention for mention in passage.named_mentions() if mention.entity.id == entity.id]
        mentions = [mention for mention in of_entity if mention.end <= stop]
        in_sentence = [mention for mention in mentions if mention.start >= start]
        mention = in_sentence[0] if in_sentence else mentions[-1] if mentions else None
        return None if mention is None else (mention.start, mention.end)
    if question.role == "why":
        because = BECAUSE_PATTERNS[passage.language].search(sentence.text)
        return None if because is None else (start + because.start(1), start + because.end(1))
    text = _answer_text(question.fact, question.role, passage.language)
    edge = r"\b" if passage.language == "en" else ""
    positions = [occurrence.start() for occurrence in re.finditer(f"{edge}{re.escape(text)}{edge}", sentence.text)]
    return (start + positions[0], start + positions[0] + len(text)) if len(positions) == 1 else None


def _base_kind(fact: Fact) -> str:
    return BASE_KINDS.get(fact.kind, fact.kind)


def _slot_value(fact: Fact, slot: str) -> object:
    role = SLOT_ROLES.get(slot, slot)
    value = getattr(fact, role)
    return value.id if role in ENTITY_ROLES and value is not None else value


def _answer_text(fact: Fact, role: str, language: str) -> str:
    """The text of an answer that is not an entity."""
    english = language == "en"
    person = fact.whom if role.endswith("_whom") else fact.who
    if person is not None and role.startswith("job"):
        return person.job.text(language)
    if person is not None and role.startswith("age"):
        return english_number(person.age) if english else chinese_number(person.age)
    if role == "count":
        return english_number(fact.count) if english else with_measure_word(fact.count, "")
    assert fact.term is not None
    return fact.term.text(language)
