"""The state of one small world: who and what there is, where it is, whose it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.facts import Fact, Moment, Noun, Person, Place, Spot, Term, Thing, Town
from meristem.samples.microworld.lexicon import Lexicon, Name

EVENING = 3
REASON = 0.4  # how often a fact is told with its cause or purpose


class World:
    """People, places and things of one story; rules read it and change it."""

    def __init__(self, dice: Dice, words: Lexicon, people: int) -> None:
        self.dice = dice
        self.words = words
        self.moment = Moment(0, dice.pick((0, 0, 1, 2)))
        self._ids = 0
        self._nouns: set[str] = set()
        self.people = [self._person(name) for name in dice.some(words.names, people)]
        self.home, self.abroad = (Town(self._id(), name) for name in dice.some(words.towns, 2))
        self.places = self._places()
        self.at: dict[int, Place | Town] = {person.id: self.home for person in self.people}
        self.things: dict[int, Thing] = {}
        self.held: dict[int, Person | Place] = {}
        self.owner: dict[int, Person] = {}
        self.since: dict[int, Moment] = {}  # when a thing last changed hands
        self.season = dice.pick(("cold", "warm"))
        self.arrived: Person | None = None  # who has just come somewhere and should do something there
        self.lost: set[int] = set()
        self.traded: set[int] = set()  # things that came to their owner within the story
        self.busy: set[tuple[int, str]] = set()  # who has worked or relaxed already: once is enough to tell
        self.broken: set[int] = set()

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def _person(self, name: Name) -> Person:
        pick, words = self.dice.pick, self.words
        age, hobby = self.dice.between(22, 79), pick(words.phrases["hobby"])
        return Person(self._id(), name.term, name.pronoun, age, pick(words.jobs), hobby)

    def _places(self) -> list[Place]:
        """Five places at home, a shop and a kitchen among them, and three abroad, no two alike."""
        chosen: list[Spot] = []
        for use in ("shop", "kitchen", "quiet", "food", "", "shop", "sight", ""):
            spot = self.dice.pick(self.words.spots[use])
            while any(spot is other for other in chosen):
                spot = self.dice.pick(self.words.spots[use])
            chosen.append(spot)
        return [Place(self._id(), noun, self.home if n < 5 else self.abroad) for n, noun in enumerate(chosen)]

    def new_thing(self) -> Thing:
        """A thing whose noun no other thing of the story has, so that naming it is enough."""
        noun = self.dice.pick(self.words.things)
        while noun.english in self._nouns:
            noun = self.dice.pick(self.words.things)
        self._nouns.add(noun.english)
        return self._described(noun)

    def _described(self, noun: Noun) -> Thing:
        dice, qualities = self.dice, self.words.qualities
        animal = "animal" in noun.kinds
        colour = dice.pick(qualities["fur" if animal else "colour"]) if dice.chance(0.75) else None
        quality = None
        if dice.chance(0.6) or colour is None:
            shaped = "shaped" in noun.kinds and dice.chance(0.5)
            quality = dice.pick(qualities["age" if animal else "shape" if shaped else "size"])
        material = dice.pick(noun.materials) if noun.materials and dice.chance(0.6) else None
        return Thing(self._id(), noun, colour, quality, material)

    def own(self, person: Person, thing: Thing) -> None:
        """The person has the thing, in hand and by right."""
        if thing.id in self.owner:
            self.traded.add(thing.id)
        self.things[thing.id] = thing
        self.owner[thing.id] = person
        self.hand(thing, person)

    def hand(self, thing: Thing, holder: Person | Place) -> None:
        """The thing goes to a hand or a place; whose it is stays."""
        self.held[thing.id] = holder
        self.since[thing.id] = self.moment
        self.lost.discard(thing.id)

    def settled(self, thing: Thing) -> bool:
        """Whether the thing has been where it is for a while: nobody loses and finds in one breath."""
        return self.since[thing.id] != self.moment

    def repaint(self, thing: Thing, colour: Term) -> None:
        """The same thing in another colour."""
        self.things[thing.id] = replace(thing, colour=colour)

    def carried(self, person: Person) -> list[Thing]:
        """What the person has at hand."""
        return [thing for key, thing in self.things.items() if self.held[key] is person]

    def left_at(self, place: Place | Town) -> list[Thing]:
        """What lies at a place."""
        return [thing for key, thing in self.things.items() if self.held[key] is place]

    def others_at(self, person: Person) -> list[Person]:
        """Who else is at the person's place."""
        here = self.at[person.id]
        return [other for other in self.people if other is not person and self.at[other.id] is here]

    def here(self, person: Person, use: str = "") -> Place | None:
        """The place the person is at, if it is a place and good for that use."""
        here = self.at[person.id]
        return here if isinstance(here, Place) and (not use or use in here.noun.uses) else None

    def company(self, person: Person) -> Person | None:
        """Somebody who is at the person's place."""
        others = self.others_at(person)
        return self.dice.pick(others) if others else None

    def at_hand(self, person: Person, kinds: frozenset[str] | None = None) -> Thing | None:
        """Something of these kinds that the person carries."""
        have = [thing for thing in self.carried(person) if kinds is None or thing.noun.kinds & kinds]
        return self.dice.pick(have) if have else None

    def town_of(self, person: Person) -> Town:
        """The town the person is in."""
        here = self.at[person.id]
        return here if isinstance(here, Town) else here.town

    def pass_time(self) -> None:
        """The day goes on, or another begins."""
        day, part = self.moment.day, self.moment.part
        roll = self.dice.roll()
        if roll < 0.3 and part < EVENING:
            self.moment = Moment(day, part + 1)
        elif roll < 0.4 or (roll < 0.5 and part == EVENING):
            self.moment = Moment(day + 1, self.dice.pick((0, 0, 1, 2)))
        elif roll < 0.43:
            self.moment = Moment(day + self.dice.between(2, 9), self.dice.between(0, EVENING))

    def once(self, person: Person, kind: str) -> bool:
        """Whether the person does this for the first time."""
        first = (person.id, kind) not in self.busy
        self.busy.add((person.id, kind))
        return first

    def fact(self, kind: str, who: Person, *, reason: float = 0.0, **roles: Any) -> Fact:
        """A fact of now, with a reason by chance where the lexicon has one for its kind."""
        thing = roles.get("what")
        whose = self.owner.get(thing.id) if thing is not None else None
        why = self.dice.pick(self.words.reasons[kind]) if reason and self.dice.chance(reason) else None
        return Fact(kind=kind, moment=self.moment, who=who, whose=whose, why=why, **roles)
