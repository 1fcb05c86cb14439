"""Story generation: simulate a world and group its facts into beats, one per sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.events import next_event
from meristem.samples.microworld.facts import Beat, Fact, Location, Person, Story, Thing
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.microworld.world import World
from meristem.utils.randomness import generator

SADDENING = frozenset({"lose", "break", "argue", "search", "wait"})
GLADDENING = frozenset({"find", "repair", "meet", "return", "fetch", "buy", "paint"})
PLEASING = frozenset({"give", "help", "show"})  # these please the other person
MIN_BEATS, MAX_BEATS = 6, 22
MIN_EVENT_BEATS = 3
NOT_CARRIED = frozenset({"furniture", "machine", "animal", "big"})  # nobody carries these


def generate_story(seed: int, number: int) -> Story:
    """Story `number` of a seed: the same on every machine, independent of other draws."""
    rng = BlockRandom(generator(seed, "microworld", 0, number))
    world = World(rng, load_lexicon(), people=rng.choice((2, 2, 3)))
    plot = Plot(world)
    length = rng.randint(MIN_BEATS, MAX_BEATS)
    plot.open()
    num_closing = 2 if length > 9 else 1
    length = max(length, len(plot.beats) + MIN_EVENT_BEATS + num_closing)
    while len(plot.beats) < length - num_closing:
        plot.advance()
    plot.close(num_closing)
    time_draws = tuple(rng.random() for _ in plot.beats)
    return Story(seed, number, rng.randint(0, 6), tuple(plot.beats), time_draws)


class Plot:
    """Generates the beats of one story."""

    def __init__(self, world: World) -> None:
        self.world, self.rng = world, world.rng
        self.beats: list[Beat] = []
        self.hero = self.actor = world.people[0]
        self._opinions: dict[tuple[int, int], int] = {}  # (holder, target) → polarity, kept through the story

    def open(self) -> None:
        """Introduce the people, their relations and their things."""
        world, rng = self.world, self.rng
        hero, *others = world.people
        count = rng.randint(2, hero.age - 12)
        kind = rng.choice(("introduce", "introduce_age", "introduce_years"))
        self._add(world.make_fact(kind, hero, town=world.home, term=hero.job, count=count))
        if rng.chance(0.5):
            self._add(*self._describe_character(hero))
        for other in others:
            self._add_relation(other)
        owners = [hero, *rng.sample(others, 1)] if rng.chance(0.4) else [rng.choice(world.people)]
        for owner in owners:
            thing = world.new_thing()
            small = not thing.noun.kinds & NOT_CARRIED
            self._add(world.make_fact("carry" if small and rng.chance(0.5) else "own", owner, what=thing))
            world.give_ownership(owner, thing)
        if rng.chance(0.25):
            count = rng.randint(8, 190)
            self._add(world.make_fact("distance", hero, town=world.home, town_to=world.other_town, count=count))

    def _add_relation(self, other: Person) -> None:
        hero, words = self.hero, self.world.lexicon
        fitting = [relation for relation in words.relations if relation.fits(other.pronoun, other.age - hero.age)]
        kind = self.rng.choice(("relate", "relate", "relate_age"))
        self._add(self.world.make_fact(kind, hero, whom=other, term=self.rng.choice(fitting).term))

    def _describe_character(self, who: Person) -> Beat:
        """A hobby and a dislike, or a like and a dislike, of one person."""
        phrases = self.world.lexicon.phrases
        liked, disliked = self.rng.sample(phrases["taste"], 2)
        dislikes = self.world.make_fact("dislikes", who, term=disliked, polarity=-1)
        if self.rng.chance(0.5):
            return self.world.make_fact("hobby_of", who, term=who.hobby), dislikes
        return self.world.make_fact("likes", who, term=liked, polarity=1), dislikes

    def advance(self) -> None:
        """Add the next event with its consequences, and sometimes an opinion about it."""
        world, rng = self.world, self.rng
        if not rng.chance(0.55):
            self.actor = rng.choice(world.people)
        event = next_event(world, self.actor)
        beat = [event]
        draw = rng.random()
        if event.why is None and draw < 0.35:
            second = next_event(world, self.actor)
            if second.kind == event.kind:
                self._add(event)
                beat = []
            beat.append(second)
        elif event.why is None and draw < 0.6:
            beat += self._mood_facts(event)
        elif draw > 0.93 and event.moment.part < 3:
            weather = rng.choice(world.lexicon.phrases[f"weather {world.season}"])
            town = event.town or world.town_of(self.actor)
            beat.insert(0, Fact(kind="weather", moment=event.moment, town=town, term=weather))
        self._add(*beat)
        if rng.chance(0.22):
            self._add_judgement(beat[-1])
        world.pass_time()

    def _mood_facts(self, event: Fact) -> list[Fact]:
        kind = event.kind
        who = event.whom if kind in PLEASING else event.who
        if who is None or kind not in SADDENING | GLADDENING | PLEASING:
            return []
        mood, polarity = ("sad", -1) if kind in SADDENING else ("happy", 1)
        feeling = self.rng.choice(self.world.lexicon.phrases[mood])
        return [self.world.make_fact(mood, who, term=feeling, polarity=polarity)]

    def _add_judgement(self, event: Fact) -> None:
        """Add someone's opinion about the event, with its cause."""
        who = event.whom if event.whom and self.rng.chance(0.5) else event.who
        if who is None:
            return
        whom = event.whom if who is event.who else event.who
        if event.what is not None:
            target = "animal" if "animal" in event.what.noun.kinds else "thing"
            self._add_opinion("judge_what", who, event.what.id, target, what=self.world.things[event.what.id])
        elif event.kind in {"cook", "eat"}:
            self._add_opinion("judge_dish", who, 0, "dish")
        elif whom is not None:
            self._add_opinion("judge_whom", who, whom.id, "person", whom=whom)
        elif event.where is not None:
            self._add_opinion("judge_where", who, event.where.id, "place", where=event.where)

    def _add_opinion(self, kind: str, who: Person, target: int, target_kind: str, **roles: Any) -> None:
        polarity = self._opinions.setdefault((who.id, target), 1 if self.rng.chance(0.5) else -1)
        key = target_kind + ("+" if polarity > 0 else "-")
        cause = self.rng.choice(self.world.lexicon.causes[key])
        fact = self.world.make_fact(kind, who, term=self.rng.choice(cause.opinions), polarity=polarity, **roles)
        self._add(replace(fact, why=cause.term))

    def close(self, num_beats: int) -> None:
        """Add the ending: where a thing is or who owns it, where the hero is, and a plan."""
        world, rng = self.world, self.rng
        if num_beats > 1:
            self._add(self._outcome(rng.choice(list(world.things.values()))))
        plan = world.make_fact("plan", self.hero, term=rng.choice(world.lexicon.phrases["plan"]))
        here = world.locations[self.hero.id]
        is_at = [world.make_fact("is_at", self.hero, where=here)] if isinstance(here, Location) else []
        self._add(*is_at, plan)

    def _outcome(self, thing: Thing) -> Fact:
        holder, owner = self.world.holders[thing.id], self.world.owners[thing.id]
        if isinstance(holder, Location):
            return self.world.make_fact("located", owner, what=thing, where=holder)
        kind = "owned" if holder is owner and thing.id in self.world.traded else "held"
        return replace(self.world.make_fact(kind, holder, what=thing), whose=None)  # not "Tom's hat stayed with Tom"

    def _add(self, *beat: Fact) -> None:
        self.beats.append(beat)
