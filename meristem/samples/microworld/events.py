"""What can happen next: the deck of all rules, and those of one person alone."""

from __future__ import annotations

from meristem.samples.microworld import handling, meeting
from meristem.samples.microworld.facts import Fact, Person, Town
from meristem.samples.microworld.handling import Rule
from meristem.samples.microworld.world import REASON, World


def move(world: World, who: Person) -> Fact | None:
    """Somebody goes to another place in the same town, rather where somebody is."""
    if world.arrived is who:
        return None
    here, town = world.at[who.id], world.town_of(who)
    near = [place for place in world.places if place.town is town and place is not here]
    busy = [place for place in near if any(world.at[p.id] is place for p in world.people) or world.left_at(place)]
    goal = world.dice.pick(busy if busy and world.dice.chance(0.7) else near)
    world.at[who.id] = goal
    return world.fact("move", who, reason=REASON, where=goal)


def travel(world: World, who: Person) -> Fact | None:
    """Somebody goes to the other town."""
    here = world.town_of(who)
    there: Town = world.abroad if here is world.home else world.home
    world.at[who.id] = there
    return world.fact("travel", who, reason=REASON, town=here, town_to=there)


def stock(world: World, who: Person) -> Fact | None:
    """Somebody buys several of something small."""
    shop = world.here(who, "food")
    if shop is None:
        return None
    goods = world.dice.pick(world.words.produce)
    return world.fact("stock", who, reason=REASON, where=shop, term=goods, count=world.dice.between(2, 12))


def cook(world: World, who: Person) -> Fact | None:
    """Somebody cooks where there is a kitchen."""
    kitchen = world.here(who, "kitchen")
    if kitchen is None:
        return None
    return world.fact("cook", who, reason=REASON, where=kitchen, term=world.dice.pick(world.words.dishes))


def work(world: World, who: Person) -> Fact | None:
    """Somebody does a piece of the day's work."""
    return world.fact("work", who, reason=REASON, term=who.job.act) if world.once(who, "work") else None


def practise(world: World, who: Person) -> Fact | None:
    """Somebody spends time on a hobby."""
    return world.fact("practise", who, term=who.hobby) if world.once(who, "practise") else None


def scene(world: World, who: Person) -> Fact | None:
    """Somebody sees or does something told with a word of two senses."""
    return world.fact("scene", who, reason=0.6, term=world.dice.pick(world.words.scenes))


RULES: tuple[tuple[Rule, int], ...] = (
    (move, 10), (travel, 2), (stock, 4), (cook, 7), (work, 4), (practise, 2), (scene, 5),
    (handling.buy, 8), (handling.sell, 4), (handling.give, 6), (handling.lend, 4), (handling.give_back, 8),
    (handling.drop("lose"), 4), (handling.drop("put"), 4), (handling.drop("hide"), 2), (handling.find, 8),
    (handling.fetch, 6), (handling.search, 8), (handling.break_, 3), (handling.repair, 8), (handling.paint, 3),
    (handling.tend, 3), (meeting.meet, 4), (meeting.talk, 5), (meeting.reach, 3), (meeting.help_, 4),
    (meeting.wait, 2), (meeting.show, 3), (meeting.tell, 5), (meeting.eat, 6),
)  # fmt: skip
DECK: tuple[Rule, ...] = tuple(rule for rule, weight in RULES for _ in range(weight))


def happen(world: World, who: Person) -> Fact:
    """The next event around a person: the first rule drawn that applies."""
    fact = move(world, who) if isinstance(world.at[who.id], Town) else None
    while fact is None:
        fact = world.dice.pick(DECK)(world, who)
    world.arrived = who if fact.kind == "move" else None
    return fact
