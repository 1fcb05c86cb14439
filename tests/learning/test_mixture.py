from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.dataset.mixture import MAX_BLOCK, SourceMixture


@pytest.mark.parametrize(
    ("weights", "block"),
    [
        ({"a": 3, "b": 1}, {"a": 3, "b": 1}),
        ({"a": 0.5, "b": 0.5}, {"a": 1, "b": 1}),
        ({"a": 70, "b": 20, "c": 10}, {"a": 7, "b": 2, "c": 1}),
        ({"a": 1 / 3, "b": 2 / 3}, {"a": 1, "b": 2}),
        ({"a": 99, "b": 1}, {"a": 99, "b": 1}),
    ],
)
def test_quotas_are_exact_in_every_block(weights: dict[str, float], block: dict[str, int]) -> None:
    mix, size = SourceMixture(weights, 0), sum(block.values())
    for number in range(5):
        assert Counter(mix(step)[0] for step in range(number * size, (number + 1) * size)) == block


@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_each_source_is_used_without_gaps(weights: list[float], seed: int) -> None:
    names = [f"source {number}" for number in range(len(weights))]
    mix = SourceMixture(dict(zip(names, weights, strict=True)), seed)
    uses: dict[str, list[int]] = {name: [] for name in names}
    for step in range(3 * MAX_BLOCK + 17):
        name, use = mix(step)
        uses[name].append(use)
    assert all(use == list(range(len(use))) for use in uses.values())
    assert all(uses[name] for name in names)


@given(weights=st.lists(st.floats(0.05, 1), min_size=2, max_size=5))
def test_shares_are_close_where_no_small_block_gives_them(weights: list[float]) -> None:
    mix = SourceMixture({str(number): weight for number, weight in enumerate(weights)}, 0)
    counts = Counter(mix(step)[0] for step in range(mix.block_size))
    for number, weight in enumerate(weights):
        assert counts[str(number)] / mix.block_size == pytest.approx(
            weight / sum(weights), abs=1.01 / MAX_BLOCK * len(weights)
        )


def test_a_step_far_away_needs_no_step_before_it() -> None:
    mix, source_mixture = SourceMixture({"a": 3, "b": 1}, 5), SourceMixture({"a": 3, "b": 1}, 5)
    distant_step = 10**12
    assert mix(distant_step) == source_mixture(distant_step)
    assert mix(distant_step)[1] >= distant_step // 4 - 1


def test_blocks_are_ordered_anew_and_by_the_seed() -> None:
    def order(seed: int, block: int) -> tuple[str, ...]:
        mix = SourceMixture({"a": 7, "b": 5}, seed)
        return tuple(mix(step)[0] for step in range(block * 12, block * 12 + 12))

    assert len({order(0, block) for block in range(6)}) > 3
    assert order(0, 0) != order(1, 0)
    assert order(0, 0) == order(0, 0)


def test_one_source_is_every_step() -> None:
    assert [SourceMixture({"only": 2.5}, 0)(step) for step in (0, 7)] == [("only", 0), ("only", 7)]


def test_shares_are_what_the_steps_are() -> None:
    mix = SourceMixture({"a": 2.0, "b": 1.0, "c": 1.0}, seed=3)
    assert mix.shares == {"a": 0.5, "b": 0.25, "c": 0.25}
    step_sources = [mix(step)[0] for step in range(40)]
    assert {name: step_sources.count(name) / 40 for name in "abc"} == mix.shares
