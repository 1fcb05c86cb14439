"""Chinese numbers, measure words and attributes."""

from __future__ import annotations

import pytest

from meristem.samples.microworld.chinese import chinese_number, describe_thing, with_measure_word
from meristem.samples.microworld.facts import Noun, Term, Thing

RED, SMALL, FINE, WOODEN = Term("red", "红色"), Term("small", "小"), Term("elegant", "精致"), Term("wooden", "木")
BOX = Noun("box", "盒子")
CAT = Noun("cat", "猫", measure="只", kinds=frozenset({"animal"}))


@pytest.mark.parametrize(
    ("value", "characters"),
    [(0, "零"), (2, "二"), (10, "十"), (12, "十二"), (20, "二十"), (35, "三十五"), (100, "一百"), (105, "一百零五"),
     (110, "一百一十"), (119, "一百一十九"), (190, "一百九十")],
)  # fmt: skip
def test_numbers(value: int, characters: str) -> None:
    assert chinese_number(value) == characters


def test_two_of_something_is_another_word() -> None:
    assert with_measure_word(2, "个") == "两个"
    assert with_measure_word(12, "个") == "十二个"


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (Thing(1, BOX, RED, SMALL, WOODEN), "红色的小木"),
        (Thing(1, BOX, RED, FINE, WOODEN), "精致的红色木"),
        (Thing(1, BOX, RED), "红色的"),
        (Thing(1, BOX, None, SMALL), "小"),
        (Thing(1, CAT, Term("black", "黑"), SMALL), "小黑"),
        (Thing(1, Noun("violin", "小提琴"), None, SMALL), ""),
        (Thing(1, Noun("violin", "小提琴"), RED, SMALL), "红色的"),
        (Thing(1, Noun("box", "大箱子"), RED, Term("big", "大"), WOODEN), "红色的大木"),
    ],
)
def test_attributes_join_as_chinese_joins_them(thing: Thing, text: str) -> None:
    assert describe_thing(thing) == text
