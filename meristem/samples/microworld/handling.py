"""What happens to things: each rule looks at the world, changes it and returns the fact, or nothing if it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from meristem.samples.microworld.facts import Fact, Person
from meristem.samples.microworld.world import REASON, World

Rule: TypeAlias = Callable[[World, Person], Fact | None]
PORTABLE = frozenset({"vessel", "tool", "music", "paper", "clothing", "jewel", "toy"})
HEAVY = PORTABLE | {"furniture", "machine"}
MENDABLE = frozenset({"furniture", "vessel", "tool", "machine", "music", "toy", "jewel"})
PAINTABLE = frozenset({"furniture", "vessel", "machine", "toy"})


def buy(world: World, who: Person) -> Fact | None:
    """Somebody buys a new thing in a shop."""
    shop = world.here(who, "shop")
    if shop is None or len(world.things) > 5:
        return None
    thing = world.new_thing()
    fact = world.fact("buy", who, reason=REASON, what=thing, where=shop, count=world.dice.between(2, 60))
    world.own(who, thing)
    return fact


def sell(world: World, who: Person) -> Fact | None:
    """Somebody sells an own thing to somebody who is there."""
    whom, thing = world.company(who), world.at_hand(who)
    if whom is None or thing is None or world.owner[thing.id] is not who:
        return None
    fact = world.fact("sell", who, reason=REASON, whom=whom, what=thing, count=world.dice.between(2, 60))
    world.own(whom, thing)
    return fact


def give(world: World, who: Person) -> Fact | None:
    """Somebody gives an own thing away."""
    whom, thing = world.company(who), world.at_hand(who)
    if whom is None or thing is None or world.owner[thing.id] is not who:
        return None
    fact = world.fact("give", who, reason=REASON, whom=whom, what=thing)
    world.own(whom, thing)
    return fact


def lend(world: World, who: Person) -> Fact | None:
    """Somebody lends an own thing: it changes hands, not owner."""
    whom, thing = world.company(who), world.at_hand(who)
    if whom is None or thing is None or world.owner[thing.id] is not who:
        return None
    world.hand(thing, whom)
    return world.fact("lend", who, reason=REASON, whom=whom, what=thing)


def give_back(world: World, who: Person) -> Fact | None:
    """Somebody returns what belongs to somebody who is there."""
    others = world.others_at(who)
    borrowed = [thing for thing in world.carried(who) if world.owner[thing.id] in others and world.settled(thing)]
    if not borrowed:
        return None
    thing = world.dice.pick(borrowed)
    whom = world.owner[thing.id]
    world.hand(thing, whom)
    return world.fact("return", who, reason=REASON, whom=whom, what=thing)


def drop(kind: str) -> Rule:
    """Ways in which a thing goes from a hand to a place."""

    def rule(world: World, who: Person) -> Fact | None:
        here, thing = world.here(who), world.at_hand(who, HEAVY if kind == "put" else PORTABLE)
        if here is None or thing is None:
            return None
        fact = world.fact(kind, who, reason=REASON, what=thing, where=here)
        world.hand(thing, here)
        if kind == "lose":
            world.lost.add(thing.id)
        return fact

    return rule


def find(world: World, who: Person) -> Fact | None:
    """Somebody finds what was lost there, or something nobody knew of."""
    here = world.here(who)
    if here is None:
        return None
    lost = [thing for thing in world.left_at(here) if thing.id in world.lost and world.settled(thing)]
    if not lost and (len(world.things) > 4 or world.dice.chance(0.6)):
        return None
    thing = world.dice.pick(lost) if lost else world.new_thing()
    reason = 0.0 if "animal" in thing.noun.kinds else REASON  # animals do not hide under leaves
    fact = world.fact("find", who, reason=reason, what=thing, where=here)
    if lost:
        world.hand(thing, who)
    else:
        world.own(who, thing)
    return fact


def fetch(world: World, who: Person) -> Fact | None:
    """Somebody takes away what was left there on purpose."""
    here = world.here(who)
    left = [t for t in world.left_at(here) if t.id not in world.lost and world.settled(t)] if here else []
    if not left:
        return None
    thing = world.dice.pick(left)
    world.hand(thing, who)
    return world.fact("fetch", who, what=thing, where=here)


def search(world: World, who: Person) -> Fact | None:
    """Somebody looks in the wrong place for what was lost."""
    here = world.here(who)
    away = [world.things[key] for key in world.lost if world.owner[key] is who and world.held[key] is not here]
    if here is None or not away:
        return None
    return world.fact("search", who, reason=REASON, what=world.dice.pick(away), where=here)


def break_(world: World, who: Person) -> Fact | None:
    """Somebody damages a thing."""
    thing = world.at_hand(who, MENDABLE)
    if thing is None or thing.id in world.broken:
        return None
    world.broken.add(thing.id)
    return world.fact("break", who, reason=REASON, what=thing)


def repair(world: World, who: Person) -> Fact | None:
    """Somebody mends what was broken."""
    thing = next((thing for thing in world.carried(who) if thing.id in world.broken), None)
    if thing is None:
        return None
    world.broken.discard(thing.id)
    return world.fact("repair", who, reason=REASON, what=thing)


def paint(world: World, who: Person) -> Fact | None:
    """Somebody gives a thing another colour."""
    thing = world.at_hand(who, PAINTABLE)
    if thing is None:
        return None
    colour = world.dice.pick([c for c in world.words.qualities["colour"] if c != thing.colour])
    fact = world.fact("paint", who, reason=REASON, what=thing, term=colour)
    world.repaint(thing, colour)
    return fact


def tend(world: World, who: Person) -> Fact | None:
    """Somebody cleans a thing or looks after an animal."""
    thing = world.at_hand(who)
    if thing is None:
        return None
    if "animal" in thing.noun.kinds:
        return world.fact("care", who, what=thing)
    return world.fact("clean", who, reason=REASON, what=thing) if "paper" not in thing.noun.kinds else None
