"""Shape scenes: two colored shapes and their spatial relation, with captions in English and Chinese."""

from __future__ import annotations

import re
from dataclasses import dataclass

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Term
from meristem.utils.randomness import generator

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
DRAWABLE_RELATIONS = ("left", "right", "above", "below", "inside")
"""Relations of the first shape to the second; `around` occurs only in captions, as the inverse of inside."""

MAX_COLOUR_DISTANCE = 5
"""Characters between a color and its shape: a red circle, 红色的圆形."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A shape with a color."""

    colour: str
    shape: str


@dataclass(frozen=True, slots=True)
class ShapeScene:
    """The content of an image: the first figure is in a relation to the second."""

    seed: int
    number: int
    first: Figure
    second: Figure
    relation: str

    @property
    def inverted(self) -> ShapeScene:
        """The same scene described from the second figure."""
        return ShapeScene(self.seed, self.number, self.second, self.first, INVERSE[self.relation])


def generate_scene(seed: int, number: int) -> ShapeScene:
    """Scene `number` of a seed; its figures always differ, and in color where one is inside the other."""
    rng = BlockRandom(generator(seed, "microworld scenes", 0, number))
    relation = rng.choice(DRAWABLE_RELATIONS)
    first, second = _draw_figure(rng), _draw_figure(rng)
    while first == second or (relation == "inside" and first.colour == second.colour):
        second = _draw_figure(rng)
    return ShapeScene(seed, number, first, second, relation)


def _draw_figure(rng: BlockRandom) -> Figure:
    return Figure(rng.choice(tuple(COLOURS)), rng.choice(tuple(SHAPES)))


def describe_scene(scene: ShapeScene, language: str) -> str:
    """A caption of the scene, from either figure's point of view."""
    rng = BlockRandom(generator(scene.seed, f"microworld captions {language}", 0, scene.number))
    described = scene.inverted if rng.chance(0.25) else scene
    return _english_caption(described, rng) if language == "en" else _chinese_caption(described, rng)


def _english_caption(scene: ShapeScene, rng: BlockRandom) -> str:
    first, second = (
        f"{'an' if figure.colour == 'orange' else 'a'} {COLOURS[figure.colour].english} {SHAPES[figure.shape].english}"
        for figure in (scene.first, scene.second)
    )
    relation = RELATIONS[scene.relation].english
    if rng.chance(0.3):
        return f"There is {first} {relation} {second}."
    return f"{first[0].upper()}{first[1:]} is {relation} {second}."


def _chinese_caption(scene: ShapeScene, rng: BlockRandom) -> str:
    first, second = (
        f"{COLOURS[figure.colour].chinese}的{SHAPES[figure.shape].chinese}" for figure in (scene.first, scene.second)
    )
    relation = RELATIONS[scene.relation].chinese
    if scene.relation == "around":
        return f"{first}{relation}{second}。"
    if rng.chance(0.3):
        return f"{second}{relation}有一个{first}。"
    return f"{first}在{second}{relation}。"


def score_caption(text: str, scene: ShapeScene) -> float:
    """The share of a scene's two colors, two shapes and relation that a caption in either language names correctly."""
    figures, relation = _parse_figures(text), _parse_relation(text)
    if "有" in text and RELATIONS["around"].chinese not in text:
        figures = figures[::-1]  # 蓝色的方形上面有一个红色的圆形: the second one is the subject
    figures += [Figure("", "")] * (2 - len(figures))
    return max(_count_correct(figures, relation, scene), _count_correct(figures, relation, scene.inverted)) / 5


def _count_correct(figures: list[Figure], relation: str, scene: ShapeScene) -> int:
    """How many of the five are correct, if the caption begins with the scene's first figure."""
    pairs = zip(figures, (scene.first, scene.second), strict=False)
    correct_counts = [(guess.colour == truth.colour) + (guess.shape == truth.shape) for guess, truth in pairs]
    return sum(correct_counts) + (relation == scene.relation)


def _parse_figures(text: str) -> list[Figure]:
    """The first two shapes that a caption names, each with the color right before it."""
    figures: list[Figure] = []
    last = 0
    for match in _SHAPE.finditer(text.lower()):
        before = _COLOUR.findall(text.lower()[max(last, match.start() - MAX_COLOUR_DISTANCE - 6) : match.start()])
        figures.append(Figure(_COLOUR_OF[before[-1]] if before else "", _SHAPE_OF[match[0]]))
        last = match.end()
    return figures[:2]


def _parse_relation(text: str) -> str:
    match = _RELATION.search(text.lower())
    return _RELATION_OF[match[0]] if match else ""


def _names_by_word(words: dict[str, Term]) -> dict[str, str]:
    return {word: name for name, term in words.items() for word in (term.english, term.chinese)}


def _word_pattern(names_by_word: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"\b{word}\b" if word.isascii() else word for word in names_by_word))


_COLOUR_OF, _SHAPE_OF, _RELATION_OF = map(_names_by_word, (COLOURS, SHAPES, RELATIONS))
_COLOUR, _SHAPE, _RELATION = map(_word_pattern, (_COLOUR_OF, _SHAPE_OF, _RELATION_OF))
