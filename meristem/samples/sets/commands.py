"""Commands: what somebody wants done, as an intent and the slots that fill it."""

from __future__ import annotations

import re
from collections.abc import Callable

from meristem.samples.microworld.chinese import counted
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.english import number
from meristem.samples.microworld.facts import Noun, Place, Spot, Town
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.microworld.telling import pieces
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.excerpt import at, said
from meristem.samples.sets.splitting import outside_in, split
from meristem.samples.sets.tables import groups

AROUND = ("before", "after")
"""Words around a command that say nothing about it."""
PARTS = {"en": ("this morning", "at noon", "in the afternoon", "this evening", "after dark", "around midday"),
         "zh": ("早上", "中午", "下午", "晚上", "天黑以后", "傍晚")}  # fmt: skip


def row(ask: Ask) -> Row | None:
    """One command with its words tagged."""
    table = groups("commands", ask.language)
    intent = ask.wish.pick([name for name in table if name not in AROUND])
    dice, space = ask.dice, " " if ask.language == "en" else ""
    text, spans = "", []
    if dice.chance(0.3):
        text += dice.pick(table["before"]) + space
    produce = dice.pick(lexicon().produce)
    for literal, slot in pieces(dice.pick(table[intent])):
        text += literal
        if slot == "measure":
            text += produce.measure
        elif slot:
            start = len(text)
            text += _goods(produce, ask.language) if slot == "goods" else FILL[slot](dice, ask.language)
            spans.append((start, len(text), slot))
    if dice.chance(0.3):
        text += space + dice.pick(table["after"]) if space else "，" + dice.pick(table["after"])
    words = split(text)
    return {"words": [word for word, *_ in words], "tags": outside_in(words, spans), "intent": intent, "text": text}


def _place(dice: Dice, language: str) -> str:
    spot: Spot = dice.pick(lexicon().spots[dice.pick(("kitchen", "shop", ""))])
    return at(Place(0, spot, Town(0, spot)), language)


def _goods(produce: Noun, language: str) -> str:
    return produce.plural if language == "en" else produce.chinese


def _dish(dice: Dice, language: str) -> str:
    dish = dice.pick(lexicon().dishes)
    return dish.english if language == "en" else dish.chinese


def _count(dice: Dice, language: str) -> str:
    count = dice.between(2, 12)
    return number(count) if language == "en" else counted(count, "")


def _day(dice: Dice, language: str) -> str:
    day = dice.pick(lexicon().times["weekday", str(dice.between(0, 6))])
    return f"on {day.english}" if language == "en" else day.chinese


def _phrase(kind: str) -> Callable[[Dice, str], str]:
    def fill(dice: Dice, language: str) -> str:
        return re.sub(r"\{\w+\}", "", said(dice.pick(lexicon().phrases[kind]), language))

    return fill


FILL: dict[str, Callable[[Dice, str], str]] = {
    "person": lambda dice, language: said(dice.pick(lexicon().names).term, language),
    "town": lambda dice, language: said(dice.pick(lexicon().towns), language),
    "thing": lambda dice, language: said(dice.pick(lexicon().things), language),
    "colour": lambda dice, language: said(dice.pick(lexicon().qualities["colour"]), language),
    "part": lambda dice, language: dice.pick(PARTS[language]),
    "task": _phrase("task"), "topic": _phrase("topic"), "place": _place, "dish": _dish,
    "count": _count, "day": _day,
}  # fmt: skip
