"""Event rules of the microworld: the weighted list of all rules, and those about a single person."""

from __future__ import annotations

from meristem.samples.microworld import object_events, social_events
from meristem.samples.microworld.facts import Fact, Person, Town
from meristem.samples.microworld.object_events import EventRule
from meristem.samples.microworld.world import World


def move(world: World, who: Person) -> Fact | None:
    """Someone goes to another place in the same town, preferably where someone is."""
    if world.just_arrived is who:
        return None
    here, town = world.locations[who.id], world.town_of(who)
    nearby = [location for location in world.places if location.town is town and location is not here]
    occupied_ids = {world.locations[person.id].id for person in world.people}
    busy_places = [location for location in nearby if location.id in occupied_ids or world.things_at(location)]
    destination = world.rng.choice(busy_places if busy_places and world.rng.chance(0.7) else nearby)
    world.locations[who.id] = destination
    return world.make_fact("move", who, where=destination)


def travel(world: World, who: Person) -> Fact | None:
    """Someone travels to the other town."""
    here = world.town_of(who)
    there: Town = world.other_town if here is world.home else world.home
    world.locations[who.id] = there
    return world.make_fact("travel", who, town=here, town_to=there)


def stock(world: World, who: Person) -> Fact | None:
    """Someone buys several items of produce."""
    shop = world.current_place(who, "food")
    if shop is None:
        return None
    goods = world.rng.choice(world.lexicon.produce)
    return world.make_fact("stock", who, where=shop, term=goods, count=world.rng.randint(2, 12))


def cook(world: World, who: Person) -> Fact | None:
    """Someone cooks in a place with a kitchen."""
    kitchen = world.current_place(who, "kitchen")
    if kitchen is None:
        return None
    return world.make_fact("cook", who, where=kitchen, term=world.rng.choice(world.lexicon.dishes))


def work(world: World, who: Person) -> Fact | None:
    """Someone does part of the day's work."""
    return world.make_fact("work", who, term=who.job.act) if world.is_first_time(who, "work") else None


def practise(world: World, who: Person) -> Fact | None:
    """Someone spends time on a hobby."""
    return world.make_fact("practise", who, term=who.hobby) if world.is_first_time(who, "practise") else None


def see_scene(world: World, who: Person) -> Fact | None:
    """Someone sees or does something described with an ambiguous word."""
    return world.make_fact("scene", who, reason_probability=0.6, term=world.rng.choice(world.lexicon.scenes))


WEIGHTED_RULES: tuple[tuple[EventRule, int], ...] = (
    (move, 10),
    (travel, 2),
    (stock, 4),
    (cook, 7),
    (work, 4),
    (practise, 2),
    (see_scene, 5),
    (object_events.buy, 8),
    (object_events.sell, 4),
    (object_events.give, 6),
    (object_events.lend, 4),
    (object_events.give_back, 8),
    (object_events.make_drop_rule("lose"), 4),
    (object_events.make_drop_rule("put"), 4),
    (object_events.make_drop_rule("hide"), 2),
    (object_events.find, 8),
    (object_events.fetch, 6),
    (object_events.search, 8),
    (object_events.break_, 3),
    (object_events.repair, 8),
    (object_events.paint, 3),
    (object_events.tend, 3),
    (social_events.meet, 4),
    (social_events.talk, 5),
    (social_events.contact, 3),
    (social_events.help_, 4),
    (social_events.wait, 2),
    (social_events.show, 3),
    (social_events.tell_location, 5),
    (social_events.eat, 6),
)
RULE_POOL: tuple[EventRule, ...] = tuple(rule for rule, weight in WEIGHTED_RULES for _ in range(weight))


def next_event(world: World, who: Person) -> Fact:
    """The next event of a person: rules are drawn until one applies."""
    fact = move(world, who) if isinstance(world.locations[who.id], Town) else None
    while fact is None:
        fact = world.rng.choice(RULE_POOL)(world, who)
    world.just_arrived = who if fact.kind == "move" else None
    return fact
