"""World state of the microworld: people, places and things, where they are, and who owns them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Fact, Location, Noun, Person, PlaceNoun, StoryTime, Term, Thing, Town
from meristem.samples.microworld.lexicon import Lexicon, PersonName

EVENING = 3
REASON_PROBABILITY = 0.4  # how often a fact has a cause or purpose


class World:
    """People, places and things of one story; event rules read and change it."""

    def __init__(self, rng: BlockRandom, lexicon: Lexicon, people: int) -> None:
        self.rng = rng
        self.lexicon = lexicon
        self.time = StoryTime(0, rng.choice((0, 0, 1, 2)))
        self._last_id = 0
        self._used_nouns: set[str] = set()
        self.people = [self._draw_person(name) for name in rng.sample(lexicon.names, people)]
        self.home, self.other_town = (Town(self._next_id(), name) for name in rng.sample(lexicon.towns, 2))
        self.places = self._draw_places()
        self.locations: dict[int, Location | Town] = {person.id: self.home for person in self.people}
        self.things: dict[int, Thing] = {}
        self.holders: dict[int, Person | Location] = {}
        self.owners: dict[int, Person] = {}
        self.moved_at: dict[int, StoryTime] = {}  # when a thing last changed its holder
        self.season = rng.choice(("cold", "warm"))
        self.just_arrived: Person | None = None  # who has just moved and should do something there
        self.lost: set[int] = set()
        self.traded: set[int] = set()  # things that changed their owner within the story
        self.done_once: set[tuple[int, str]] = set()  # who has already worked or relaxed: once per story is enough
        self.broken: set[int] = set()

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _draw_person(self, name: PersonName) -> Person:
        choice, lexicon = self.rng.choice, self.lexicon
        age, hobby = self.rng.randint(22, 79), choice(lexicon.phrases["hobby"])
        return Person(self._next_id(), name.term, name.pronoun, age, choice(lexicon.jobs), hobby)

    def _draw_places(self) -> list[Location]:
        """Five distinct places in the home town, including a shop and a kitchen, and three in the other town."""
        chosen: list[PlaceNoun] = []
        for use in ("shop", "kitchen", "quiet", "food", "", "shop", "sight", ""):
            place_noun = self.rng.choice(self.lexicon.place_nouns[use])
            while any(place_noun is other for other in chosen):
                place_noun = self.rng.choice(self.lexicon.place_nouns[use])
            chosen.append(place_noun)
        return [
            Location(self._next_id(), noun, self.home if index < 5 else self.other_town)
            for index, noun in enumerate(chosen)
        ]

    def new_thing(self) -> Thing:
        """A thing whose noun no other thing of the story has, so that the noun identifies it."""
        noun = self.rng.choice(self.lexicon.things)
        while noun.english in self._used_nouns:
            noun = self.rng.choice(self.lexicon.things)
        self._used_nouns.add(noun.english)
        return self._draw_thing(noun)

    def _draw_thing(self, noun: Noun) -> Thing:
        rng, qualities = self.rng, self.lexicon.qualities
        animal = "animal" in noun.kinds
        colour = rng.choice(qualities["fur" if animal else "colour"]) if rng.chance(0.75) else None
        quality = None
        if rng.chance(0.6) or colour is None:
            shaped = "shaped" in noun.kinds and rng.chance(0.5)
            quality = rng.choice(qualities["age" if animal else "shape" if shaped else "size"])
        material = rng.choice(noun.materials) if noun.materials and rng.chance(0.6) else None
        return Thing(self._next_id(), noun, colour, quality, material)

    def give_ownership(self, person: Person, thing: Thing) -> None:
        """Make the person owner and holder of the thing."""
        if thing.id in self.owners:
            self.traded.add(thing.id)
        self.things[thing.id] = thing
        self.owners[thing.id] = person
        self.move_thing(thing, person)

    def move_thing(self, thing: Thing, holder: Person | Location) -> None:
        """Move the thing to a person or place; its owner stays the same."""
        self.holders[thing.id] = holder
        self.moved_at[thing.id] = self.time
        self.lost.discard(thing.id)

    def is_settled(self, thing: Thing) -> bool:
        """Whether the thing was moved before the current time: nothing is lost and found at once."""
        return self.moved_at[thing.id] != self.time

    def repaint(self, thing: Thing, colour: Term) -> None:
        """Change the color of a thing."""
        self.things[thing.id] = replace(thing, colour=colour)

    def things_held_by(self, person: Person) -> list[Thing]:
        """Things that the person holds."""
        return [thing for key, thing in self.things.items() if self.holders[key] is person]

    def things_at(self, location: Location | Town) -> list[Thing]:
        """Things at a place."""
        return [thing for key, thing in self.things.items() if self.holders[key] is location]

    def people_with(self, person: Person) -> list[Person]:
        """Other people at the person's place."""
        here = self.locations[person.id]
        return [other for other in self.people if other is not person and self.locations[other.id] is here]

    def current_place(self, person: Person, use: str = "") -> Location | None:
        """The person's place, if it is a place (not a town) with that use."""
        here = self.locations[person.id]
        return here if isinstance(here, Location) and (not use or use in here.noun.uses) else None

    def draw_companion(self, person: Person) -> Person | None:
        """Someone at the person's place."""
        others = self.people_with(person)
        return self.rng.choice(others) if others else None

    def draw_held_thing(self, person: Person, kinds: frozenset[str] | None = None) -> Thing | None:
        """A thing of these kinds that the person holds."""
        candidates = [thing for thing in self.things_held_by(person) if kinds is None or thing.noun.kinds & kinds]
        return self.rng.choice(candidates) if candidates else None

    def town_of(self, person: Person) -> Town:
        """The town the person is in."""
        here = self.locations[person.id]
        return here if isinstance(here, Town) else here.town

    def pass_time(self) -> None:
        """Advance the time within the day or to another day, at random."""
        day, part = self.time.day, self.time.part
        draw = self.rng.random()
        if draw < 0.3 and part < EVENING:
            self.time = StoryTime(day, part + 1)
        elif draw < 0.4 or (draw < 0.5 and part == EVENING):
            self.time = StoryTime(day + 1, self.rng.choice((0, 0, 1, 2)))
        elif draw < 0.43:
            self.time = StoryTime(day + self.rng.randint(2, 9), self.rng.randint(0, EVENING))

    def is_first_time(self, person: Person, kind: str) -> bool:
        """Whether the person does this for the first time."""
        is_first = (person.id, kind) not in self.done_once
        self.done_once.add((person.id, kind))
        return is_first

    def make_fact(
        self, kind: str, who: Person, *, reason_probability: float = REASON_PROBABILITY, **roles: Any
    ) -> Fact:
        """A fact at the current time, with a random reason where the lexicon has one for its kind."""
        thing = roles.get("what")
        whose = self.owners.get(thing.id) if thing is not None else None
        reasons = self.lexicon.reasons.get(kind) if reason_probability else None
        why = self.rng.choice(reasons) if reasons and self.rng.chance(reason_probability) else None
        return Fact(kind=kind, moment=self.time, who=who, whose=whose, why=why, **roles)
