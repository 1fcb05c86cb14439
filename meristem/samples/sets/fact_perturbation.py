"""Perturbed facts: one detail changed, so that texts are almost but not quite the same."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Fact
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.sets.opinion_facts import invert_opinion

REQUIRED_USES = {"buy": "shop", "stock": "food", "cook": "kitchen"}
"""The use that a place must have for an event."""
DIRECTED_KINDS = frozenset({"sell", "give", "lend", "return", "call", "write", "wait", "help", "show"})
"""Kinds that are not symmetric: swapping the people changes the meaning."""
NEW_PLACE_ID_OFFSET = 1000
"""Added to the id of a place that no story has."""


def perturb_fact(fact: Fact, rng: BlockRandom) -> Fact:
    """The fact with an inverted opinion, swapped people, or another place, number or color; else unchanged."""
    if fact.kind.startswith("judge"):
        return invert_opinion(fact, rng)
    if fact.kind in DIRECTED_KINDS:
        return replace(fact, who=fact.whom, whom=fact.who)
    if fact.where is not None:
        return change_place(fact, rng)
    if fact.count:
        return replace(fact, count=rng.choice([count for count in range(2, 60) if count != fact.count]))
    if fact.kind == "paint":
        colours = [colour for colour in load_lexicon().qualities["colour"] if colour != fact.term]
        return replace(fact, term=rng.choice(colours))
    return fact


def change_place(fact: Fact, rng: BlockRandom) -> Fact:
    """The same fact in another suitable place."""
    assert fact.where is not None
    suitable = load_lexicon().place_nouns[REQUIRED_USES.get(fact.kind, "")]
    fitting = [place_noun for place_noun in suitable if place_noun is not fact.where.noun]
    new_place = replace(fact.where, id=fact.where.id + NEW_PLACE_ID_OFFSET, noun=rng.choice(fitting))
    return replace(fact, where=new_place)
