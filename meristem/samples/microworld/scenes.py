"""Scenes: two coloured shapes and how they stand to each other, told in English or Chinese and named again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from meristem.randomness import generator
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.facts import Term

COLOURS = {
    "red": Term("red", "红色"), "green": Term("green", "绿色"), "blue": Term("blue", "蓝色"),
    "yellow": Term("yellow", "黄色"), "purple": Term("purple", "紫色"), "orange": Term("orange", "橙色"),
    "white": Term("white", "白色"), "black": Term("black", "黑色"),
}  # fmt: skip
SHAPES = {
    "circle": Term("circle", "圆形"), "square": Term("square", "方形"), "triangle": Term("triangle", "三角形"),
    "diamond": Term("diamond", "菱形"), "cross": Term("cross", "十字"), "ring": Term("ring", "圆环"),
}  # fmt: skip
RELATIONS = {
    "left": Term("to the left of", "左边"), "right": Term("to the right of", "右边"), "above": Term("above", "上面"),
    "below": Term("below", "下面"), "inside": Term("inside", "里面"), "around": Term("around", "围着"),
}  # fmt: skip
INVERSE = {"left": "right", "right": "left", "above": "below", "below": "above", "inside": "around", "around": "inside"}
DRAWN = ("left", "right", "above", "below", "inside")
"""Relations of the first shape to the second; `around` is only said, of the second to the first."""

NEAR = 5
"""Characters between a colour and its shape: a red circle, 红色的圆形."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A shape in a colour."""

    colour: str
    shape: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows: the first figure stands in a relation to the second."""

    seed: int
    number: int
    first: Figure
    second: Figure
    relation: str

    @property
    def turned(self) -> Scene:
        """The same scene seen from the second figure."""
        return Scene(self.seed, self.number, self.second, self.first, INVERSE[self.relation])


def scene(seed: int, number: int) -> Scene:
    """Scene `number` of a seed; its figures always differ, and in colour where one lies inside the other."""
    dice = Dice(generator(seed, "microworld scenes", 0, number))
    relation = dice.pick(DRAWN)
    first, second = _figure(dice), _figure(dice)
    while first == second or (relation == "inside" and first.colour == second.colour):
        second = _figure(dice)
    return Scene(seed, number, first, second, relation)


def _figure(dice: Dice) -> Figure:
    return Figure(dice.pick(tuple(COLOURS)), dice.pick(tuple(SHAPES)))


def caption(shown: Scene, language: str) -> str:
    """The scene in one sentence, from either figure's side."""
    dice = Dice(generator(shown.seed, f"microworld captions {language}", 0, shown.number))
    told = shown.turned if dice.chance(0.25) else shown
    return _english(told, dice) if language == "en" else _chinese(told, dice)


def _english(told: Scene, dice: Dice) -> str:
    first, second = (
        f"{'an' if figure.colour == 'orange' else 'a'} {COLOURS[figure.colour].english} {SHAPES[figure.shape].english}"
        for figure in (told.first, told.second)
    )
    relation = RELATIONS[told.relation].english
    if dice.chance(0.3):
        return f"There is {first} {relation} {second}."
    return f"{first[0].upper()}{first[1:]} is {relation} {second}."


def _chinese(told: Scene, dice: Dice) -> str:
    first, second = (
        f"{COLOURS[figure.colour].chinese}的{SHAPES[figure.shape].chinese}" for figure in (told.first, told.second)
    )
    relation = RELATIONS[told.relation].chinese
    if told.relation == "around":
        return f"{first}{relation}{second}。"
    if dice.chance(0.3):
        return f"{second}{relation}有一个{first}。"
    return f"{first}在{second}{relation}。"


def named(text: str, shown: Scene) -> float:
    """The share of a scene's two colours, two shapes and relation that a caption in either language names right."""
    figures, relation = _figures(text), _relation(text)
    if "有" in text and RELATIONS["around"].chinese not in text:
        figures = figures[::-1]  # 蓝色的方形上面有一个红色的圆形: the second is the one spoken of
    figures += [Figure("", "")] * (2 - len(figures))
    return max(_right(figures, relation, shown), _right(figures, relation, shown.turned)) / 5


def _right(figures: list[Figure], relation: str, shown: Scene) -> int:
    """How many of the five are right, where the caption begins with the scene's first figure."""
    pairs = zip(figures, (shown.first, shown.second), strict=False)
    each = [(said.colour == true.colour) + (said.shape == true.shape) for said, true in pairs]
    return sum(each) + (relation == shown.relation)


def _figures(text: str) -> list[Figure]:
    """The first two shapes a caption names, each with the colour right before it."""
    found: list[Figure] = []
    last = 0
    for match in _SHAPE.finditer(text.lower()):
        before = _COLOUR.findall(text.lower()[max(last, match.start() - NEAR - 6) : match.start()])
        found.append(Figure(_COLOUR_OF[before[-1]] if before else "", _SHAPE_OF[match[0]]))
        last = match.end()
    return found[:2]


def _relation(text: str) -> str:
    found = _RELATION.search(text.lower())
    return _RELATION_OF[found[0]] if found else ""


def _spellings(words: dict[str, Term]) -> dict[str, str]:
    return {word: name for name, term in words.items() for word in (term.english, term.chinese)}


def _pattern(spelled: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"\b{word}\b" if word.isascii() else word for word in spelled))


_COLOUR_OF, _SHAPE_OF, _RELATION_OF = map(_spellings, (COLOURS, SHAPES, RELATIONS))
_COLOUR, _SHAPE, _RELATION = map(_pattern, (_COLOUR_OF, _SHAPE_OF, _RELATION_OF))
