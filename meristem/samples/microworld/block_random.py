"""Random choices from a NumPy generator, drawn in blocks: fast enough for thousands of stories per second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from numpy.random import Generator

T = TypeVar("T")
BLOCK_SIZE = 256  # one call into numpy costs as much as fifty draws from a list


def _uniform(rng: Generator) -> Iterator[float]:
    while True:
        yield from rng.random(BLOCK_SIZE).tolist()


class BlockRandom:
    """Uniform random numbers drawn from the generator in blocks."""

    def __init__(self, rng: Generator) -> None:
        self.random: Callable[[], float] = _uniform(rng).__next__
        """A number in [0, 1)."""

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def randint(self, low: int, high: int) -> int:
        """A uniform integer from low to high, both included."""
        return low + int(self.random() * (high - low + 1))

    def choice(self, items: Sequence[T]) -> T:
        """One of the items, uniformly."""
        return items[int(self.random() * len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Distinct items in random order."""
        remaining = list(items)
        return [remaining.pop(int(self.random() * len(remaining))) for _ in range(min(count, len(remaining)))]
