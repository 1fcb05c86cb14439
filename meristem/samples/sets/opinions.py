"""What somebody in a story makes of somebody or something: opinions drawn anew, with their causes and opposites."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from meristem.samples.microworld import Fact, Person, Place, Story, Term, Thing
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.facts import Moment
from meristem.samples.microworld.lexicon import Cause, lexicon

E = TypeVar("E", Person, Thing, Place)


OFTEN = ("place",) * 4 + ("thing",) * 3 + ("person",) * 2 + ("dish",)
"""What opinions are about, about as often as in the stories."""


def about(fact: Fact) -> str:
    """The sort of thing an opinion is about, as the lexicon keeps its words."""
    if fact.what is not None:
        return "animal" if "animal" in fact.what.noun.kinds else "thing"
    return {"judge_where": "place", "judge_whom": "person"}.get(fact.kind, "dish")


def judgement(of: Story, polarity: int, dice: Dice) -> Fact:
    """Somebody's good or bad opinion of something that the story knows."""
    people = known(of, Person)
    who = dice.pick(people)
    fact = Fact(kind="judge_dish", moment=Moment(), who=who, polarity=polarity)
    match dice.pick(OFTEN):
        case "place":
            fact = replace(fact, kind="judge_where", where=dice.pick(known(of, Place)))
        case "thing":
            fact = replace(fact, kind="judge_what", what=dice.pick(known(of, Thing)))
        case "person":
            others = [person for person in people if person is not who]
            fact = replace(fact, kind="judge_whom", whom=dice.pick(others))
    cause = dice.pick(causes(fact))
    return replace(fact, term=dice.pick(cause.opinions), why=cause.term)


def causes(fact: Fact, *, turned: bool = False) -> tuple[Cause, ...]:
    """The causes there are for such an opinion, or for its opposite."""
    good = (fact.polarity > 0) != turned
    return lexicon().causes[about(fact) + ("+" if good else "-")]


def opposite(fact: Fact, dice: Dice) -> Term:
    """A word that says the opposite of the opinion."""
    return dice.pick(dice.pick(causes(fact, turned=True)).opinions)


def turned(fact: Fact, dice: Dice) -> Fact:
    """The opposite opinion of the same, with a cause of its own."""
    cause = dice.pick(causes(fact, turned=True))
    return replace(fact, polarity=-fact.polarity, term=dice.pick(cause.opinions), why=cause.term)


def known(of: Story, sort: type[E]) -> list[E]:
    """Those of the story's people, things or places that its facts name, each once."""
    found: dict[int, E] = {}
    for fact in of.facts:
        for one in (fact.who, fact.whom, fact.what, fact.where):
            if isinstance(one, sort):
                found.setdefault(one.id, one)
    return list(found.values())
