"""People and towns with names that nobody has heard of: only what stands around them tells which is which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meristem.samples.microworld import Person, Story, Term, Town
from meristem.samples.microworld.dice import Dice

BEGIN = (
    "b",
    "br",
    "d",
    "dr",
    "f",
    "g",
    "gl",
    "h",
    "k",
    "kr",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "z",
)
MIDDLE = ("a", "e", "i", "o", "u", "ai", "ea", "io")
END = (
    "ba",
    "den",
    "dor",
    "fa",
    "gan",
    "kin",
    "la",
    "lin",
    "lo",
    "mer",
    "na",
    "nor",
    "ra",
    "ren",
    "ro",
    "sa",
    "tan",
    "vik",
)
SIGNS = "安贝岑岱恩菲格翰嘉凯兰曼诺奥佩琦若桑泰维希雅泽卓朵弥洛珂"
"""Signs that names are made of; any two or three are one."""


def renamed(of: Story, share: float, dice: Dice) -> Story:
    """The story with new names for this share of its people and towns."""
    new: dict[int, Person | Town] = {}

    def again(value: Any) -> Any:
        if not isinstance(value, Person | Town):
            return value
        if value.id not in new:
            new[value.id] = replace(value, name=unheard(dice)) if dice.chance(share) else value
        return new[value.id]

    roles = ("who", "whom", "whose", "town", "town_to")
    beats = []
    for beat in of.beats:
        facts = [replace(fact, **{role: again(getattr(fact, role)) for role in roles}) for fact in beat]
        told = [fact if fact.where is None else replace(fact, where=replace(fact.where, town=again(fact.where.town)))
                for fact in facts]  # fmt: skip
        beats.append(tuple(told))
    return replace(of, beats=tuple(beats))


def unheard(dice: Dice) -> Term:
    """A name for a person or a town, nothing in it says for which."""
    english = dice.pick(BEGIN) + dice.pick(MIDDLE) + dice.pick(END)
    chinese = "".join(dice.some(SIGNS, dice.between(2, 3)))
    return Term(english.capitalize(), chinese)
