from __future__ import annotations

import numpy as np
import pytest
import torch

from meristem.blocks.leash import CHEAPEST, DECAY, Leash


def test_the_scale_follows_rewards_and_newer_ones_count_more() -> None:
    leash = Leash()
    assert leash.scale == (0.0, 1.0)
    rng = np.random.default_rng(0)
    for _ in range(400):
        some = rng.normal(3.0, 2.0, 256)
        leash.saw(float(some.mean()), float((some**2).mean()))
    mean, spread = leash.scale
    assert mean == pytest.approx(3.0, abs=0.1) and spread == pytest.approx(2.0, abs=0.1)
    weights = DECAY ** np.arange(3)[::-1]
    few = Leash()
    for value in (1.0, 2.0, 6.0):
        few.saw(value, value**2)
    assert few.scale[0] == pytest.approx(float(weights @ [1.0, 2.0, 6.0] / weights.sum()))


def test_the_price_rises_when_too_far_and_falls_when_near() -> None:
    leash = Leash()
    leash.pull(30.0, 10.0, 0.5)
    assert float(leash.price) == pytest.approx(1.5)  # no more than the whole speed at once
    leash.pull(0.0, 10.0, 0.5)
    assert float(leash.price) == pytest.approx(1.5 * 0.9)  # and a fifth of it back
    for _ in range(100):
        leash.pull(0.0, 10.0, 0.5)
    assert float(leash.price) == CHEAPEST


def test_variety_is_measured_against_the_first_steps() -> None:
    leash = Leash()
    assert [leash.met(value, 2) for value in (0.8, 0.6)] == [1.0, 1.0]
    assert leash.met(0.35, 2) == pytest.approx(0.5)


def test_everything_is_in_the_weights_that_are_saved() -> None:
    leash, other = Leash(), Leash()
    leash.saw(1.5, 4.0)
    leash.pull(5.0, 1.0, 0.1)
    leash.met(0.7, 3)
    other.load_state_dict(leash.state_dict())
    assert other.scale == leash.scale and torch.equal(other.price, leash.price)
    assert torch.equal(other.variety, leash.variety)
