"""Learning-rate schedules: warm-up, shapes and final learning rate."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.training.optim.lr_schedules import lr_factor, warmup_steps, weight_decay_factor
from meristem.training.settings import TrainSettings

NAMES = ["cosine", "linear", "inverse_sqrt", "constant_then_decay", "constant"]


def curve(total: int = 100, **settings: Any) -> list[float]:
    train_settings = TrainSettings(**{"warmup": 0.1, **settings})
    return [lr_factor(train_settings, step, total) for step in range(total)]


@pytest.mark.parametrize("schedule", NAMES)
def test_the_rate_rises_evenly_and_never_starts_at_zero(schedule: str) -> None:
    rates = curve(schedule=schedule)
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert max(rates) <= 1
    assert rates[10] == pytest.approx(1, abs=0.05)
    assert all(a >= b for a, b in pairwise(rates[10:]))


def test_each_shape_is_its_own() -> None:
    assert curve(schedule="cosine")[55] == pytest.approx(0.5)
    assert curve(schedule="cosine")[32] == pytest.approx(0.5 * (1 + math.cos(math.pi * 22 / 90)))
    assert curve(schedule="linear")[55] == pytest.approx(0.5)
    assert curve(schedule="linear")[28] == pytest.approx(0.8)
    assert curve(schedule="inverse_sqrt")[39] == pytest.approx(0.5)
    assert curve(schedule="constant")[99] == 1
    decaying = curve(schedule="constant_then_decay", decay_fraction=0.2)
    assert decaying[10:82] == [1.0] * 72
    assert decaying[91] == pytest.approx(0.5)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant_then_decay"])
def test_the_end_is_the_floor(schedule: str) -> None:
    assert curve(total=10_000, schedule=schedule)[-1] == pytest.approx(0, abs=1e-3)
    assert curve(total=10_000, schedule=schedule, min_lr_ratio=0.1)[-1] == pytest.approx(0.1, abs=1e-3)
    settings = TrainSettings(schedule=schedule, min_lr_ratio=0.25)
    assert lr_factor(settings, 100, 100) == lr_factor(settings, 10**6, 100) == pytest.approx(0.25)


def test_a_warm_up_is_a_share_or_a_number() -> None:
    assert warmup_steps(TrainSettings(warmup=0.05), 1000) == 50
    assert warmup_steps(TrainSettings(warmup=200), 1000) == 200
    assert warmup_steps(TrainSettings(warmup=0), 1000) == 0
    assert curve(warmup=0)[0] == 1


@given(
    schedule=st.sampled_from(NAMES),
    warmup=st.floats(0, 0.99) | st.integers(1, 200).map(float),
    total=st.integers(1, 300),
    floor=st.floats(0, 1),
    step=st.integers(0, 400),
)
def test_a_rate_is_always_between_nothing_and_its_peak(
    schedule: str, warmup: float, total: int, floor: float, step: int
) -> None:
    factor = lr_factor(TrainSettings(schedule=schedule, warmup=warmup, min_lr_ratio=floor), step, total)  # type: ignore[arg-type]
    assert 0 <= factor <= 1 + 1e-12


def test_weight_decay_is_constant_or_falls_to_zero() -> None:
    assert [weight_decay_factor(TrainSettings(), step, 4) for step in range(4)] == [1, 1, 1, 1]
    linear = TrainSettings(weight_decay_schedule="linear")
    assert [weight_decay_factor(linear, step, 4) for step in (0, 1, 2, 3, 4, 9)] == [1, 0.75, 0.5, 0.25, 0, 0]
