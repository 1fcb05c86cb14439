"""Choices drawn from one generator, cheap enough for thousands of stories a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from numpy.random import Generator

T = TypeVar("T")
BLOCK = 256  # one call into numpy costs as much as fifty draws from a list


def _uniform(rng: Generator) -> Iterator[float]:
    while True:
        yield from rng.random(BLOCK).tolist()


class Dice:
    """Uniform draws taken from the generator in blocks."""

    def __init__(self, rng: Generator) -> None:
        self.roll: Callable[[], float] = _uniform(rng).__next__
        """A number in [0, 1)."""

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.roll() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self.roll() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely."""
        return items[int(self.roll() * len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Different items in drawn order."""
        left = list(items)
        return [left.pop(int(self.roll() * len(left))) for _ in range(min(count, len(left)))]
