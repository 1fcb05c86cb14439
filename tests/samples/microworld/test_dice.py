"""Draws from one generator."""

from __future__ import annotations

from collections import Counter

from meristem.randomness import generator
from meristem.samples.microworld.dice import Dice


def dice(sample: int = 0) -> Dice:
    return Dice(generator(0, "test", 0, sample))


def test_draws_are_uniform_across_blocks() -> None:
    one = dice()
    counts = Counter(one.pick("abcde") for _ in range(20_000))
    assert all(abs(count - 4_000) < 300 for count in counts.values())
    assert Counter(one.between(3, 5) for _ in range(3_000)).keys() == {3, 4, 5}
    assert 0.27 < sum(one.chance(0.3) for _ in range(5_000)) / 5_000 < 0.33


def test_some_are_different_and_at_most_all() -> None:
    assert sorted(dice().some("abc", 3)) == ["a", "b", "c"]
    assert sorted(dice().some("abc", 9)) == ["a", "b", "c"]
    assert len({tuple(dice(n).some("abcd", 2)) for n in range(200)}) == 12


def test_the_same_generator_draws_the_same() -> None:
    one, two = dice(5), dice(5)
    assert [one.roll() for _ in range(600)] == [two.roll() for _ in range(600)]
