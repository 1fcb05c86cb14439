"""Template filling out of context, with names and full nouns."""

from __future__ import annotations

from meristem.samples.microworld.chinese import WITHOUT_HEN
from meristem.samples.microworld.clause_templates import split_template
from meristem.samples.microworld.facts import Entity, Fact, Location, Noun, Thing
from meristem.samples.sets.excerpt import entity_phrase, place_phrase


def fill_template(template: str, fact: Fact, language: str) -> str:
    """A template with its slots filled from a fact."""
    parts = (literal + (_slot_text(fact, slot, language) if slot else "") for literal, slot in split_template(template))
    text = "".join(parts)
    return text[:1].upper() + text[1:]


def _slot_text(fact: Fact, slot: str, language: str) -> str:
    """The text of a slot, out of context."""
    if slot == "where":
        assert isinstance(fact.where, Location)
        return place_phrase(fact.where, language)
    if slot == "goods":
        assert isinstance(fact.term, Noun)
        return fact.term.plural if language == "en" else fact.term.chinese
    if slot == "adjective":
        assert fact.term is not None
        return fact.term.chinese if fact.term.chinese.startswith(WITHOUT_HEN) else f"很{fact.term.chinese}"
    if slot == "term":
        assert fact.term is not None
        return fact.term.text(language)
    entity: Entity = getattr(fact, "where" if slot == "place" else slot)
    if language == "zh" and isinstance(entity, Thing):
        return f"那{entity.noun.measure}{entity.noun.chinese}"
    return entity_phrase(entity, language)
