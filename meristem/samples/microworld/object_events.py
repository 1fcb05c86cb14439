"""Event rules about things: each rule checks and changes the world and returns the fact, or None if inapplicable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from meristem.samples.microworld.facts import Fact, Person
from meristem.samples.microworld.world import REASON_PROBABILITY, World

EventRule: TypeAlias = Callable[[World, Person], Fact | None]
PORTABLE = frozenset({"vessel", "tool", "music", "paper", "clothing", "jewel", "toy"})
PUTTABLE = PORTABLE | {"furniture", "machine"}
MENDABLE = frozenset({"furniture", "vessel", "tool", "machine", "music", "toy", "jewel"})
PAINTABLE = frozenset({"furniture", "vessel", "machine", "toy"})


def buy(world: World, who: Person) -> Fact | None:
    """Someone buys a new thing in a shop."""
    shop = world.current_place(who, "shop")
    if shop is None or len(world.things) > 5:
        return None
    thing = world.new_thing()
    fact = world.make_fact("buy", who, what=thing, where=shop, count=world.rng.randint(2, 60))
    world.give_ownership(who, thing)
    return fact


def sell(world: World, who: Person) -> Fact | None:
    """Someone sells their own thing to someone present."""
    return _hand_over(world, who, "sell", max_price=60)


def give(world: World, who: Person) -> Fact | None:
    """Someone gives away their own thing."""
    return _hand_over(world, who, "give")


def _hand_over(world: World, who: Person, kind: str, max_price: int = 0) -> Fact | None:
    """Someone present becomes the owner of someone's own thing."""
    whom, thing = world.draw_companion(who), world.draw_held_thing(who)
    if whom is None or thing is None or world.owners[thing.id] is not who:
        return None
    price = {"count": world.rng.randint(2, max_price)} if max_price else {}
    fact = world.make_fact(kind, who, whom=whom, what=thing, **price)
    world.give_ownership(whom, thing)
    return fact


def lend(world: World, who: Person) -> Fact | None:
    """Someone lends their own thing: the holder changes, not the owner."""
    whom, thing = world.draw_companion(who), world.draw_held_thing(who)
    if whom is None or thing is None or world.owners[thing.id] is not who:
        return None
    world.move_thing(thing, whom)
    return world.make_fact("lend", who, whom=whom, what=thing)


def give_back(world: World, who: Person) -> Fact | None:
    """Someone returns a thing to its owner, who is present."""
    others = world.people_with(who)
    borrowed = [
        thing for thing in world.things_held_by(who) if world.owners[thing.id] in others and world.is_settled(thing)
    ]
    if not borrowed:
        return None
    thing = world.rng.choice(borrowed)
    whom = world.owners[thing.id]
    world.move_thing(thing, whom)
    return world.make_fact("return", who, whom=whom, what=thing)


def make_drop_rule(kind: str) -> EventRule:
    """A rule by which a thing moves from a person to a place."""

    def rule(world: World, who: Person) -> Fact | None:
        here, thing = world.current_place(who), world.draw_held_thing(who, PUTTABLE if kind == "put" else PORTABLE)
        if here is None or thing is None:
            return None
        fact = world.make_fact(kind, who, what=thing, where=here)
        world.move_thing(thing, here)
        if kind == "lose":
            world.lost.add(thing.id)
        return fact

    return rule


def find(world: World, who: Person) -> Fact | None:
    """Someone finds a thing that was lost there, or a new thing."""
    here = world.current_place(who)
    if here is None:
        return None
    lost = [thing for thing in world.things_at(here) if thing.id in world.lost and world.is_settled(thing)]
    if not lost and (len(world.things) > 4 or world.rng.chance(0.6)):
        return None
    thing = world.rng.choice(lost) if lost else world.new_thing()
    reason = 0.0 if "animal" in thing.noun.kinds else REASON_PROBABILITY  # animals do not hide under leaves
    fact = world.make_fact("find", who, reason_probability=reason, what=thing, where=here)
    if lost:
        world.move_thing(thing, who)
    else:
        world.give_ownership(who, thing)
    return fact


def fetch(world: World, who: Person) -> Fact | None:
    """Someone picks up a thing that was left there on purpose."""
    here = world.current_place(who)
    things = world.things_at(here) if here else []
    available = [thing for thing in things if thing.id not in world.lost and world.is_settled(thing)]
    if not available:
        return None
    thing = world.rng.choice(available)
    world.move_thing(thing, who)
    return world.make_fact("fetch", who, what=thing, where=here)


def search(world: World, who: Person) -> Fact | None:
    """Someone searches the wrong place for a lost thing."""
    here = world.current_place(who)
    lost_elsewhere = [
        world.things[key] for key in world.lost if world.owners[key] is who and world.holders[key] is not here
    ]
    if here is None or not lost_elsewhere:
        return None
    return world.make_fact("search", who, what=world.rng.choice(lost_elsewhere), where=here)


def break_(world: World, who: Person) -> Fact | None:
    """Someone damages a thing."""
    thing = world.draw_held_thing(who, MENDABLE)
    if thing is None or thing.id in world.broken:
        return None
    world.broken.add(thing.id)
    return world.make_fact("break", who, what=thing)


def repair(world: World, who: Person) -> Fact | None:
    """Someone repairs a broken thing."""
    thing = next((thing for thing in world.things_held_by(who) if thing.id in world.broken), None)
    if thing is None:
        return None
    world.broken.discard(thing.id)
    return world.make_fact("repair", who, what=thing)


def paint(world: World, who: Person) -> Fact | None:
    """Someone paints a thing in another color."""
    thing = world.draw_held_thing(who, PAINTABLE)
    if thing is None:
        return None
    colour = world.rng.choice([other for other in world.lexicon.qualities["colour"] if other != thing.colour])
    fact = world.make_fact("paint", who, what=thing, term=colour)
    world.repaint(thing, colour)
    return fact


def tend(world: World, who: Person) -> Fact | None:
    """Someone cleans a thing or looks after an animal."""
    thing = world.draw_held_thing(who)
    if thing is None:
        return None
    if "animal" in thing.noun.kinds:
        return world.make_fact("care", who, what=thing)
    return world.make_fact("clean", who, what=thing) if "paper" not in thing.noun.kinds else None
