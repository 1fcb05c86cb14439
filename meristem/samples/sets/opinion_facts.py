"""Opinion facts: random opinions of people in a story, with causes and opposites."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Fact, Location, Person, Story, StoryTime, Term, Thing
from meristem.samples.microworld.lexicon import Cause, load_lexicon

EntityT = TypeVar("EntityT", Person, Thing, Location)


TARGET_WEIGHTS = ("place",) * 4 + ("thing",) * 3 + ("person",) * 2 + ("dish",)
"""Targets of opinions, about as frequent as in the stories."""


def opinion_target(fact: Fact) -> str:
    """The target type of an opinion, as in the lexicon."""
    if fact.what is not None:
        return "animal" if "animal" in fact.what.noun.kinds else "thing"
    return {"judge_where": "place", "judge_whom": "person"}.get(fact.kind, "dish")


def draw_opinion(story: Story, polarity: int, rng: BlockRandom) -> Fact:
    """Someone's positive or negative opinion of an entity of the story."""
    people = story_entities(story, Person)
    who = rng.choice(people)
    fact = Fact(kind="judge_dish", moment=StoryTime(), who=who, polarity=polarity)
    match rng.choice(TARGET_WEIGHTS):
        case "place":
            fact = replace(fact, kind="judge_where", where=rng.choice(story_entities(story, Location)))
        case "thing":
            fact = replace(fact, kind="judge_what", what=rng.choice(story_entities(story, Thing)))
        case "person":
            others = [person for person in people if person is not who]
            fact = replace(fact, kind="judge_whom", whom=rng.choice(others))
    cause = rng.choice(opinion_causes(fact))
    return replace(fact, term=rng.choice(cause.opinions), why=cause.term)


def opinion_causes(fact: Fact, *, inverted: bool = False) -> tuple[Cause, ...]:
    """The causes of such an opinion, or of its opposite."""
    is_positive = (fact.polarity > 0) != inverted
    return load_lexicon().causes[opinion_target(fact) + ("+" if is_positive else "-")]


def draw_opposite(fact: Fact, rng: BlockRandom) -> Term:
    """A word for the opposite of the opinion."""
    return rng.choice(rng.choice(opinion_causes(fact, inverted=True)).opinions)


def invert_opinion(fact: Fact, rng: BlockRandom) -> Fact:
    """The opposite opinion of the same target, with a cause of its own."""
    cause = rng.choice(opinion_causes(fact, inverted=True))
    return replace(fact, polarity=-fact.polarity, term=rng.choice(cause.opinions), why=cause.term)


def story_entities(story: Story, entity_type: type[EntityT]) -> list[EntityT]:
    """The people, things or places in the facts of a story, each once."""
    entities: dict[int, EntityT] = {}
    for fact in story.facts:
        for entity in (fact.who, fact.whom, fact.what, fact.where):
            if isinstance(entity, entity_type):
                entities.setdefault(entity.id, entity)
    return list(entities.values())
