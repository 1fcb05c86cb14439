"""Invented names for people and towns, which only their context can tell apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Fact, Person, Story, Term, Town

_STARTS = "b br d dr f g gl h k kr l m n p r s st t tr v w z"
NAME_STARTS = tuple(_STARTS.split())
NAME_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_ENDINGS = "ba den dor fa gan kin la lin lo mer na nor ra ren ro sa tan vik"
NAME_ENDINGS = tuple(_ENDINGS.split())
NAME_CHARACTERS = "安贝岑岱恩菲格翰嘉凯兰曼诺奥佩琦若桑泰维希雅泽卓朵弥洛珂"
"""Characters of names; any two or three make a name."""


def replace_names(story: Story, share: float, rng: BlockRandom) -> Story:
    """The story with invented names for this share of its people and towns."""
    replaced: dict[int, Person | Town] = {}

    def replace_name(value: Any) -> Any:
        if not isinstance(value, Person | Town):
            return value
        if value.id not in replaced:
            replaced[value.id] = replace(value, name=invent_name(rng)) if rng.chance(share) else value
        return replaced[value.id]

    roles = ("who", "whom", "whose", "town", "town_to")

    def rename(fact: Fact) -> Fact:
        fact = replace(fact, **{role: replace_name(getattr(fact, role)) for role in roles})
        if fact.where is None:
            return fact
        return replace(fact, where=replace(fact.where, town=replace_name(fact.where.town)))

    return replace(story, beats=tuple(tuple(map(rename, beat)) for beat in story.beats))


def invent_name(rng: BlockRandom) -> Term:
    """A name that fits a person as well as a town."""
    english = rng.choice(NAME_STARTS) + rng.choice(NAME_VOWELS) + rng.choice(NAME_ENDINGS)
    chinese = "".join(rng.sample(NAME_CHARACTERS, rng.randint(2, 3)))
    return Term(english.capitalize(), chinese)
