"""Phases: every step belongs to one, in order, with its share; what has begun is never moved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.dataset.phases import PhaseSchedule, phase_starts

SHARES = st.lists(st.floats(0.05, 5), min_size=1, max_size=5)


@given(shares=SHARES, total=st.integers(5, 5000))
def test_phases_follow_each_other_with_their_shares(shares: list[float], total: int) -> None:
    names = [f"phase-{number}" for number in range(len(shares))]
    schedule = PhaseSchedule(dict(zip(names, shares, strict=True)), phase_starts(shares, total))
    seen = [schedule(step) for step in range(total)]
    assert list(dict.fromkeys(name for name, _ in seen)) == names
    for name, share in zip(names, shares, strict=True):
        uses = [use for other, use in seen if other == name]
        assert uses == list(range(len(uses)))
        assert len(uses) == pytest.approx(share / sum(shares) * total, abs=len(shares) + 1)


@given(shares=SHARES, total=st.integers(5, 500), factor=st.floats(0.2, 4), share=st.floats(0, 1))
def test_another_number_of_steps_moves_only_what_has_not_begun(
    shares: list[float], total: int, factor: float, share: float
) -> None:
    schedule = PhaseSchedule({str(number): value for number, value in enumerate(shares)}, phase_starts(shares, total))
    step = int(share * (total - 1))
    before = [schedule(earlier) for earlier in range(step + 1)]
    schedule.replan(step, max(step + 1, round(factor * total)))
    assert [schedule(earlier) for earlier in range(step + 1)] == before
    assert schedule.starts == sorted(set(schedule.starts))
