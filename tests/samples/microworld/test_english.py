"""English morphology."""

from __future__ import annotations

import pytest

from meristem.samples.microworld.english import adjectives, english_number, with_article
from meristem.samples.microworld.facts import Noun, Term, Thing


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "zero"), (9, "nine"), (13, "thirteen"), (20, "twenty"), (21, "twenty-one"), (99, "ninety-nine"),
     (100, "one hundred"), (105, "one hundred and five"), (190, "one hundred and ninety")],
)  # fmt: skip
def test_numbers(value: int, words: str) -> None:
    assert english_number(value) == words


@pytest.mark.parametrize(
    "phrase",
    ["a box", "an apple", "an old box", "an unusual hat", "a university", "a useful thing", "an honest man", "an hour",
     "a house", "a European town", "an umbrella"],
)  # fmt: skip
def test_articles_follow_the_sound(phrase: str) -> None:
    assert with_article(phrase.split(" ", 1)[1]) == phrase


def test_adjectives_stand_in_order() -> None:
    box = Thing(1, Noun("box", "盒子"), Term("red", "红色"), Term("small", "小"), Term("wooden", "木"))
    assert adjectives(box) == ["small", "red", "wooden"]
