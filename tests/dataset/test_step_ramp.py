"""Step ramp: sizes, sample numbers and work of the first steps; batches that read every sample once, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.dataset.step_ramp import NO_RAMP, StepRamp, StepWork

RAMPS = st.builds(
    StepRamp,
    batch_steps=st.integers(0, 60),
    batch_start=st.floats(0.01, 0.99),
    length_steps=st.integers(0, 60),
    length_parts=st.sampled_from([1, 2, 4, 8, 16]),
)


@given(ramp=RAMPS, batch_size=st.integers(1, 300))
def test_steps_read_consecutive_samples_and_grow_to_full_ones(ramp: StepRamp, batch_size: int) -> None:
    position, sizes, parts = 0, list[int](), list[int]()
    for step in range(ramp.steps + 4):
        assert ramp.first_sample(step, batch_size) == position
        sizes.append(ramp.num_samples(step, batch_size))
        parts.append(ramp.row_parts(step))
        position += sizes[-1]
    assert sizes == sorted(sizes) and sizes[-4:] == [batch_size] * 4
    assert parts == sorted(parts, reverse=True) and parts[-4:] == [1] * 4
    assert set(parts) <= set(ramp.all_parts)
    assert ramp.first_sample(10**9, batch_size) == position + (10**9 - len(sizes)) * batch_size
    if ramp.batch_steps:
        assert sizes[0] == max(1, round(batch_size * ramp.batch_start))


def test_the_parts_halve_in_stages_of_equal_length() -> None:
    ramp = StepRamp(length_steps=9, length_parts=8)
    assert [ramp.row_parts(step) for step in range(11)] == [8] * 3 + [4] * 3 + [2] * 3 + [1] * 2
    assert ramp.all_parts == (8, 4, 2, 1)


@given(ramp=RAMPS, discount=st.floats(0.5, 1), step=st.integers(0, 200))
def test_work_is_the_sum_of_the_steps_and_is_converted_back(ramp: StepRamp, discount: float, step: int) -> None:
    part_work = {parts: discount if parts > 1 else 1.0 for parts in ramp.all_parts}
    work = StepWork(ramp, part_work)
    expected = sum(ramp.batch_share(number) * part_work[ramp.row_parts(number)] for number in range(step))
    assert work.until(step) == pytest.approx(expected)
    assert work.steps(work.until(step)) == pytest.approx(step)


def test_without_a_ramp_every_step_is_full() -> None:
    assert NO_RAMP.first_sample(7, 5) == 35 and NO_RAMP.row_parts(0) == 1 and NO_RAMP.all_parts == (1,)
    assert StepWork(NO_RAMP, {1: 1.0}).until(7) == 7
