"""Event rules about interactions between people."""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact, Location, Person
from meristem.samples.microworld.world import World


def meet(world: World, who: Person) -> Fact | None:
    """Two people meet."""
    whom, here = world.draw_companion(who), world.current_place(who)
    if whom is None or here is None:
        return None
    return world.make_fact("meet", who, whom=whom, where=here)


def talk(world: World, who: Person) -> Fact | None:
    """Two people talk or argue about something."""
    whom = world.draw_companion(who)
    if whom is None:
        return None
    kind = "argue" if world.rng.chance(0.3) else "talk"
    return world.make_fact(kind, who, whom=whom, term=world.rng.choice(world.lexicon.phrases["topic"]))


def contact(world: World, who: Person) -> Fact | None:
    """Someone calls or writes to someone elsewhere."""
    absent = [other for other in world.people if world.locations[other.id] is not world.locations[who.id]]
    if not absent:
        return None
    topic = world.rng.choice(world.lexicon.phrases["topic"])
    kind = "write" if world.rng.chance(0.4) else "call"
    return world.make_fact(kind, who, whom=world.rng.choice(absent), term=topic)


def help_(world: World, who: Person) -> Fact | None:
    """Someone helps someone."""
    whom = world.draw_companion(who)
    if whom is None:
        return None
    return world.make_fact("help", who, whom=whom, term=world.rng.choice(world.lexicon.phrases["task"]))


def wait(world: World, who: Person) -> Fact | None:
    """Someone waits for someone who is not there."""
    here = world.current_place(who)
    absent = [other for other in world.people if world.locations[other.id] is not here]
    if here is None or not absent:
        return None
    return world.make_fact("wait", who, whom=world.rng.choice(absent), where=here)


def show(world: World, who: Person) -> Fact | None:
    """Someone shows someone a thing."""
    whom, thing = world.draw_companion(who), world.draw_held_thing(who)
    if whom is None or thing is None:
        return None
    return world.make_fact("show", who, whom=whom, what=thing)


def tell_location(world: World, who: Person) -> Fact | None:
    """Someone tells someone where a thing is."""
    whom = world.draw_companion(who)
    known_things = [thing for key, thing in world.things.items() if key not in world.lost]
    placed_things = [thing for thing in known_things if isinstance(world.holders[thing.id], Location)]
    if whom is None or not placed_things:
        return None
    thing = world.rng.choice(placed_things)
    return world.make_fact("tell", who, whom=whom, what=thing, where=world.holders[thing.id])


def eat(world: World, who: Person) -> Fact | None:
    """Two people eat together."""
    whom = world.draw_companion(who)
    if whom is None or world.current_place(who, "kitchen") is None:
        return None
    return world.make_fact("eat", who, whom=whom, term=world.rng.choice(world.lexicon.dishes))
