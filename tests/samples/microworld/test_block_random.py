"""Random choices drawn in blocks."""

from __future__ import annotations

from collections import Counter

from meristem.samples.microworld.block_random import BlockRandom
from meristem.utils.randomness import generator


def dice(sample: int = 0) -> BlockRandom:
    return BlockRandom(generator(0, "test", 0, sample))


def test_draws_are_uniform_across_blocks() -> None:
    block_random = dice()
    counts = Counter(block_random.choice("abcde") for _ in range(20_000))
    assert all(abs(count - 4_000) < 300 for count in counts.values())
    assert Counter(block_random.randint(3, 5) for _ in range(3_000)).keys() == {3, 4, 5}
    assert 0.27 < sum(block_random.chance(0.3) for _ in range(5_000)) / 5_000 < 0.33


def test_some_are_different_and_at_most_all() -> None:
    assert sorted(dice().sample("abc", 3)) == ["a", "b", "c"]
    assert sorted(dice().sample("abc", 9)) == ["a", "b", "c"]
    assert len({tuple(dice(n).sample("abcd", 2)) for n in range(200)}) == 12


def test_the_same_generator_draws_the_same() -> None:
    first_random, second_random = dice(5), dice(5)
    assert [first_random.random() for _ in range(600)] == [second_random.random() for _ in range(600)]
