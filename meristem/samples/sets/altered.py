"""Facts with one thing about them changed, so that a text is almost, but not quite, the same."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld import Fact
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.sets.opinions import turned

USES = {"buy": "shop", "stock": "food", "cook": "kitchen"}
"""What a place must be good for where something happens."""
ONE_WAY = frozenset({"sell", "give", "lend", "return", "call", "write", "wait", "help", "show"})
"""What one does to another is not what the other does to one."""
ANOTHER = 1000
"""Added to the number of a place that no story has."""


def altered(fact: Fact, dice: Dice) -> Fact:
    """The opposite opinion, people in each other's place, another place, number or colour; or nothing to change."""
    if fact.kind.startswith("judge"):
        return turned(fact, dice)
    if fact.kind in ONE_WAY:
        return replace(fact, who=fact.whom, whom=fact.who)
    if fact.where is not None:
        return elsewhere(fact, dice)
    if fact.count:
        return replace(fact, count=dice.pick([count for count in range(2, 60) if count != fact.count]))
    if fact.kind == "paint":
        return replace(fact, term=dice.pick([one for one in lexicon().qualities["colour"] if one != fact.term]))
    return fact


def elsewhere(fact: Fact, dice: Dice) -> Fact:
    """The same in another place that is good for it."""
    assert fact.where is not None
    fitting = [spot for spot in lexicon().spots[USES.get(fact.kind, "")] if spot is not fact.where.noun]
    there = replace(fact.where, id=fact.where.id + ANOTHER, noun=dice.pick(fitting))
    return replace(fact, where=there)
