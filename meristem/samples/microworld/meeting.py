"""What happens between people."""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact, Person, Place
from meristem.samples.microworld.world import REASON, World


def meet(world: World, who: Person) -> Fact | None:
    """Two people come across each other."""
    whom, here = world.company(who), world.here(who)
    if whom is None or here is None:
        return None
    return world.fact("meet", who, reason=REASON, whom=whom, where=here)


def talk(world: World, who: Person) -> Fact | None:
    """Two people talk, or argue, about something."""
    whom = world.company(who)
    if whom is None:
        return None
    kind = "argue" if world.dice.chance(0.3) else "talk"
    return world.fact(kind, who, reason=REASON, whom=whom, term=world.dice.pick(world.words.phrases["topic"]))


def reach(world: World, who: Person) -> Fact | None:
    """Somebody calls or writes to somebody who is elsewhere."""
    away = [other for other in world.people if world.at[other.id] is not world.at[who.id]]
    if not away:
        return None
    topic = world.dice.pick(world.words.phrases["topic"])
    if world.dice.chance(0.4):
        return world.fact("write", who, reason=REASON, whom=world.dice.pick(away), term=topic)
    return world.fact("call", who, whom=world.dice.pick(away), term=topic)


def help_(world: World, who: Person) -> Fact | None:
    """Somebody helps somebody."""
    whom = world.company(who)
    if whom is None:
        return None
    return world.fact("help", who, reason=REASON, whom=whom, term=world.dice.pick(world.words.phrases["task"]))


def wait(world: World, who: Person) -> Fact | None:
    """Somebody waits for somebody who is not there."""
    here = world.here(who)
    away = [other for other in world.people if world.at[other.id] is not here]
    if here is None or not away:
        return None
    return world.fact("wait", who, reason=REASON, whom=world.dice.pick(away), where=here)


def show(world: World, who: Person) -> Fact | None:
    """Somebody shows somebody a thing."""
    whom, thing = world.company(who), world.at_hand(who)
    if whom is None or thing is None:
        return None
    return world.fact("show", who, reason=REASON, whom=whom, what=thing)


def tell(world: World, who: Person) -> Fact | None:
    """Somebody tells somebody where a thing is."""
    whom = world.company(who)
    known = [thing for key, thing in world.things.items() if key not in world.lost]
    left = [thing for thing in known if isinstance(world.held[thing.id], Place)]
    if whom is None or not left:
        return None
    thing = world.dice.pick(left)
    return world.fact("tell", who, whom=whom, what=thing, where=world.held[thing.id])


def eat(world: World, who: Person) -> Fact | None:
    """Two people eat together."""
    whom = world.company(who)
    if whom is None or world.here(who, "kitchen") is None:
        return None
    return world.fact("eat", who, whom=whom, term=world.dice.pick(world.words.dishes))
