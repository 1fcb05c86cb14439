"""A story: a world is drawn, things happen in it, and what happened is cut into beats for telling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meristem.randomness import generator
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.events import happen
from meristem.samples.microworld.facts import Beat, Fact, Person, Place, Story, Thing
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.microworld.world import World

SADDENING = frozenset({"lose", "break", "argue", "search", "wait"})
GLADDENING = frozenset({"find", "repair", "meet", "return", "fetch", "buy", "paint"})
PLEASING = frozenset({"give", "help", "show"})  # it is the other one who is glad
SHORTEST, LONGEST = 6, 22  # beats
EVENTS = 3  # at least so many beats in which something happens
LEFT_HOME = frozenset({"furniture", "machine", "animal", "big"})  # nobody has these always at hand


def story(seed: int, number: int) -> Story:
    """Story `number` of a seed: the same on every machine, whatever was drawn before."""
    dice = Dice(generator(seed, "microworld", 0, number))
    world = World(dice, lexicon(), people=dice.pick((2, 2, 3)))
    plot = Plot(world)
    length = dice.between(SHORTEST, LONGEST)
    plot.open()
    ending = 2 if length > 9 else 1
    length = max(length, len(plot.beats) + EVENTS + ending)
    while len(plot.beats) < length - ending:
        plot.advance()
    plot.close(ending)
    pace = tuple(dice.roll() for _ in plot.beats)
    return Story(seed, number, dice.between(0, 6), tuple(plot.beats), pace)


class Plot:
    """The beats of one story as they come about."""

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, world.dice
        self.beats: list[Beat] = []
        self.hero = self.actor = world.people[0]
        self._minds: dict[tuple[int, int], int] = {}  # (holder, target) → polarity, kept through the story

    def open(self) -> None:
        """Who there is, how they are related, and what they have."""
        world, dice = self.world, self.dice
        hero, *others = world.people
        count = dice.between(2, hero.age - 12)
        kind = dice.pick(("introduce", "introduce_age", "introduce_years"))
        self._add(world.fact(kind, hero, town=world.home, term=hero.job, count=count))
        if dice.chance(0.5):
            self._add(*self._character(hero))
        for other in others:
            self._relate(other)
        owners = [hero, *dice.some(others, 1)] if dice.chance(0.4) else [dice.pick(world.people)]
        for owner in owners:
            thing = world.new_thing()
            small = not thing.noun.kinds & LEFT_HOME
            self._add(world.fact("carry" if small and dice.chance(0.5) else "own", owner, what=thing))
            world.own(owner, thing)
        if dice.chance(0.25):
            count = dice.between(8, 190)
            self._add(world.fact("distance", hero, town=world.home, town_to=world.abroad, count=count))

    def _relate(self, other: Person) -> None:
        hero, words = self.hero, self.world.words
        fitting = [r for r in words.relations if r.fits(other.pronoun, other.age - hero.age)]
        kind = self.dice.pick(("relate", "relate", "relate_age"))
        self._add(self.world.fact(kind, hero, whom=other, term=self.dice.pick(fitting).term))

    def _character(self, who: Person) -> Beat:
        """A hobby and a taste, or two tastes, of one person."""
        phrases = self.world.words.phrases
        liked, disliked = self.dice.some(phrases["taste"], 2)
        dislikes = self.world.fact("dislikes", who, term=disliked, polarity=-1)
        if self.dice.chance(0.5):
            return self.world.fact("hobby_of", who, term=who.hobby), dislikes
        return self.world.fact("likes", who, term=liked, polarity=1), dislikes

    def advance(self) -> None:
        """The next event, what follows from it, and what somebody makes of it."""
        world, dice = self.world, self.dice
        if not dice.chance(0.55):
            self.actor = dice.pick(world.people)
        event = happen(world, self.actor)
        beat = [event]
        roll = dice.roll()
        if event.why is None and roll < 0.35:
            second = happen(world, self.actor)
            if second.kind == event.kind:
                self._add(event)
                beat = []
            beat.append(second)
        elif event.why is None and roll < 0.6:
            beat += self._mood(event)
        elif roll > 0.93 and event.moment.part < 3:
            weather = dice.pick(world.words.phrases[f"weather {world.season}"])
            town = event.town or world.town_of(self.actor)
            beat.insert(0, Fact(kind="weather", moment=event.moment, town=town, term=weather))
        self._add(*beat)
        if dice.chance(0.22):
            self._judge(beat[-1])
        world.pass_time()

    def _mood(self, event: Fact) -> list[Fact]:
        kind = event.kind
        who = event.whom if kind in PLEASING else event.who
        if who is None or kind not in SADDENING | GLADDENING | PLEASING:
            return []
        mood, polarity = ("sad", -1) if kind in SADDENING else ("happy", 1)
        return [self.world.fact(mood, who, term=self.dice.pick(self.world.words.phrases[mood]), polarity=polarity)]

    def _judge(self, event: Fact) -> None:
        """Somebody's opinion of what the event was about, with its cause."""
        who = event.whom if event.whom and self.dice.chance(0.5) else event.who
        if who is None:
            return
        whom = event.whom if who is event.who else event.who
        if event.what is not None:
            target = "animal" if "animal" in event.what.noun.kinds else "thing"
            self._opine("judge_what", who, event.what.id, target, what=self.world.things[event.what.id])
        elif event.kind in {"cook", "eat"}:
            self._opine("judge_dish", who, 0, "dish")
        elif whom is not None:
            self._opine("judge_whom", who, whom.id, "person", whom=whom)
        elif event.where is not None:
            self._opine("judge_where", who, event.where.id, "place", where=event.where)

    def _opine(self, kind: str, who: Person, target: int, about: str, **roles: Any) -> None:
        polarity = self._minds.setdefault((who.id, target), 1 if self.dice.chance(0.5) else -1)
        key = about + ("+" if polarity > 0 else "-")
        cause = self.dice.pick(self.world.words.causes[key])
        fact = self.world.fact(kind, who, term=self.dice.pick(cause.opinions), polarity=polarity, **roles)
        self._add(replace(fact, why=cause.term))

    def close(self, beats: int) -> None:
        """How it ended: where a thing is or whose it is, and where the hero is and what comes next."""
        world, dice = self.world, self.dice
        if beats > 1:
            self._add(self._outcome(dice.pick(list(world.things.values()))))
        plan = world.fact("plan", self.hero, term=dice.pick(world.words.phrases["plan"]))
        here = world.at[self.hero.id]
        self._add(world.fact("is_at", self.hero, where=here), plan) if isinstance(here, Place) else self._add(plan)

    def _outcome(self, thing: Thing) -> Fact:
        holder, owner = self.world.held[thing.id], self.world.owner[thing.id]
        if isinstance(holder, Place):
            return self.world.fact("located", owner, what=thing, where=holder)
        kind = "owned" if holder is owner and thing.id in self.world.traded else "held"
        return replace(self.world.fact(kind, holder, what=thing), whose=None)  # not "Tom's hat stayed with Tom"

    def _add(self, *beat: Fact) -> None:
        self.beats.append(beat)
