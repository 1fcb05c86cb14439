from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.utils.randomness import MAX_STORED_SIZE, KeyedPermutation, SampleRng, generator, stream_key, torch_seed


def test_golden_draws(golden: Path) -> None:
    """A new numpy that draws differently would silently change every run that goes on."""
    expected = json.loads((golden / "draws.json").read_text())
    rng = generator(7, "mlm", 3, 11)
    draws = {
        "key": str(stream_key(7, "mlm", 3)),
        "random": rng.random(4).tolist(),
        "integers": rng.integers(1000, size=4).tolist(),
        "permutation": rng.permutation(8).tolist(),
        "geometric": rng.geometric(0.2, size=4).tolist(),
        "order_small": KeyedPermutation(1000, 5, 2)(np.arange(6)).tolist(),
        "order_large": KeyedPermutation(10**11, 5, 2)(np.arange(6)).tolist(),
        "torch_seed": torch_seed(1, 2, 3),
    }
    assert draws == expected


def test_draws_follow_every_part_of_their_name_and_nothing_else() -> None:
    stream_names = [(0, "mlm", 0, 0), (1, "mlm", 0, 0), (0, "nsp", 0, 0), (0, "mlm", 1, 0), (0, "mlm", 0, 1)]
    first = {stream_name: tuple(generator(*stream_name).random(3)) for stream_name in stream_names}
    assert len(set(first.values())) == len(stream_names)
    assert all(tuple(generator(*stream_name).random(3)) == first[stream_name] for stream_name in reversed(stream_names))
    assert tuple(SampleRng(0, 1, 0)("mlm").random(3)) == first[0, "mlm", 1, 0]


def test_streams_of_neighbouring_samples_do_not_overlap() -> None:
    first_stream, other = generator(0, "mlm", 0, 5).random(4000), generator(0, "mlm", 0, 6).random(4000)
    assert not set(first_stream.tolist()) & set(other.tolist())


def test_keys_tell_numbers_from_words() -> None:
    assert stream_key(1) != stream_key("1")
    assert stream_key("a", "b") != stream_key("ab")
    assert 0 <= stream_key("x") < 2**128


def test_torch_seeds_differ_by_step_micro_step_and_process_and_fit_torch() -> None:
    seeds = {torch_seed(s, t, m, p) for s in range(2) for t in range(3) for m in range(3) for p in range(2)}
    assert len(seeds) == 36
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    "size", [1, 2, 3, 10, 1000, MAX_STORED_SIZE - 1, MAX_STORED_SIZE, MAX_STORED_SIZE + 1, 65_537, 100_003, 262_144]
)
def test_an_order_is_a_permutation(size: int) -> None:
    samples = KeyedPermutation(size, 3, 1)(np.arange(size))
    assert np.array_equal(np.sort(samples), np.arange(size))


@given(size=st.integers(1, 300_000), seed=st.integers(0, 2**40), epoch=st.integers(0, 1000))
def test_positions_asked_one_by_one_or_together_are_the_same(size: int, seed: int, epoch: int) -> None:
    order = KeyedPermutation(size, seed, epoch)
    positions = np.unique(np.linspace(0, size - 1, 7).astype(np.int64))
    batched = order(positions)
    assert [int(order(int(position))[0]) for position in positions] == batched.tolist()
    assert len(set(batched.tolist())) == len(positions)
    assert batched.min() >= 0
    assert batched.max() < size


@pytest.mark.parametrize("size", [5_000, 70_000, 10**6])
def test_the_first_tenth_of_an_order_is_spread_evenly(size: int) -> None:
    """Chi-square over 50 bins, drawn without replacement: far above 100 means a skewed order."""
    bins = np.zeros(50)
    for epoch in range(4):
        samples = KeyedPermutation(size, 9, epoch)(np.arange(size // 10))
        bins += np.bincount(samples * 50 // size, minlength=50)
    expected = 4 * (size // 10) / 50
    assert ((bins - expected) ** 2 / expected).sum() < 100
    assert ((bins - expected) ** 2 / expected).sum() > 5  # nor may it be a comb


@pytest.mark.parametrize("size", [50_000, 200_000])
def test_neighbours_are_torn_apart(size: int) -> None:
    """Where one sample lands says nothing of where the next does: the mean distance of two draws is size/3."""
    samples = KeyedPermutation(size, 1, 0)(np.arange(20_000))
    assert abs(np.abs(np.diff(samples)).mean() / size - 1 / 3) < 0.01


def test_epochs_and_seeds_are_ordered_differently() -> None:
    for size in (1000, 100_000):
        orders = [
            KeyedPermutation(size, seed, epoch)(np.arange(50)).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0))
        ]
        assert len({tuple(order) for order in orders}) == 3


def test_an_order_of_a_hundred_billion_costs_nothing() -> None:
    start = time.process_time()
    order = KeyedPermutation(10**11, 0, 0)
    samples = order(np.array([0, 10**11 - 1, 12_345_678_901]))
    assert time.process_time() - start < 0.05
    assert len(set(samples.tolist())) == 3
    assert samples.max() < 10**11


def test_positions_outside_and_empty_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        KeyedPermutation(0, 0, 0)
    for size in (10, 100_000):
        with pytest.raises(IndexError, match=f"0 to {size - 1}"):
            KeyedPermutation(size, 0, 0)(size)
        with pytest.raises(IndexError):
            KeyedPermutation(size, 0, 0)(-1)
