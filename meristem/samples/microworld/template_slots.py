"""Slots of clause templates that every language has: what is written for {who}, {what}, {town}, …"""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact, Person, Town
from meristem.samples.microworld.surface_realization import SlotWriter, SurfaceRealizer


def common_slots(realizer_type: type[SurfaceRealizer]) -> dict[str, SlotWriter]:
    """The slots that the templates of every language have."""
    return {
        "who": realizer_type.write_subject,
        "whom": realizer_type.write_other_person,
        "who's": realizer_type.write_possessor,
        "what": realizer_type.write_thing,
        "what!": realizer_type.write_full_thing,
        "place": realizer_type.write_place,
        "where": realizer_type.write_location,
        "term": realizer_type.write_term,
        "act": realizer_type.write_term,
        "cause": realizer_type.write_cause,
        "count_produce": realizer_type.write_counted_produce,
        "count": lambda realizer, fact: realizer.write(realizer.count_text(fact.count)),
        "town": _town_slot("town"),
        "town_to": _town_slot("town_to"),
        "age": _age_slot("who"),
        "age_whom": _age_slot("whom"),
    }


def pronoun_slot(role: str, pronouns: dict[str, str], suffix: str = "") -> SlotWriter:
    """A slot for a pronoun of the person in a role."""

    def slot(realizer: SurfaceRealizer, fact: Fact) -> None:
        person: Person = getattr(fact, role)
        realizer.write_mention(pronouns[person.pronoun], person)
        realizer.write(suffix)

    return slot


def _town_slot(role: str) -> SlotWriter:
    def slot(realizer: SurfaceRealizer, fact: Fact) -> None:
        town: Town = getattr(fact, role)
        realizer.write_mention(town.name.text(realizer.language), town)

    return slot


def _age_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(realizer.number_text(getattr(fact, role).age))
