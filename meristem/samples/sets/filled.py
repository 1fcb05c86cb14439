"""Templates filled out of any context: everybody and everything is called by name."""

from __future__ import annotations

from meristem.samples.microworld import Entity, Fact, Place, Thing
from meristem.samples.microworld.chinese import BARE
from meristem.samples.microworld.facts import Noun
from meristem.samples.microworld.telling import pieces
from meristem.samples.sets.excerpt import at, called, said


def filled(template: str, fact: Fact, language: str) -> str:
    """A template with its slots told from a fact."""
    parts = (literal + (_slot(fact, slot, language) if slot else "") for literal, slot in pieces(template))
    text = "".join(parts)
    return text[:1].upper() + text[1:]


def _slot(fact: Fact, slot: str, language: str) -> str:
    """A question's slot, filled out of any context."""
    if slot == "where":
        assert isinstance(fact.where, Place)
        return at(fact.where, language)
    if slot == "goods":
        assert isinstance(fact.term, Noun)
        return fact.term.plural if language == "en" else fact.term.chinese
    if slot == "adjective":
        assert fact.term is not None
        return fact.term.chinese if fact.term.chinese.startswith(BARE) else f"很{fact.term.chinese}"
    if slot == "term":
        assert fact.term is not None
        return said(fact.term, language)
    entity: Entity = getattr(fact, "where" if slot == "place" else slot)
    if language == "zh" and isinstance(entity, Thing):
        return f"那{entity.noun.measure}{entity.noun.chinese}"
    return called(entity, language)
