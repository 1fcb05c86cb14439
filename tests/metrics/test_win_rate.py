"""Win rates: counted by hand, against SciPy, and coverage of their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.metrics.win_rate import WinRate, compute_win_rate


def test_ties_count_half() -> None:
    win_rate = compute_win_rate([0.1, 0.5, 0.3, 0.9], [0.4, 0.5, 0.2, 1.0])
    assert (win_rate.wins, win_rate.ties, win_rate.losses) == (2, 1, 1)
    assert win_rate.rate == 2.5 / 4
    assert compute_win_rate([0.1, 0.5], [0.15, 0.9], tie_margin=0.1) == WinRate(wins=1, ties=1, losses=0)


@pytest.mark.parametrize(("wins", "losses"), [(7, 3), (0, 12), (30, 30), (1, 0), (700, 600), (9000, 8800)])
def test_sign_test_and_interval_are_scipys(wins: int, losses: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    theirs = stats.binomtest(wins, wins + losses)
    win_rate = WinRate(wins=wins, ties=0, losses=losses)
    assert win_rate.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert win_rate.interval == pytest.approx(tuple(theirs.proportion_ci(method="wilson")), rel=1e-6)
    assert WinRate(wins=wins, ties=50, losses=losses).p_value == win_rate.p_value


def test_intervals_cover_the_truth_at_least_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    for shares in ([0.6, 0.0, 0.4], [0.5, 0.3, 0.2], [0.9, 0.05, 0.05]):
        covered = 0
        for _ in range(1000):
            wins, ties, losses = rng.multinomial(60, shares).tolist()
            low, high = WinRate(wins=wins, ties=ties, losses=losses).interval
            covered += low <= shares[0] + shares[1] / 2 <= high
        assert covered / 1000 > 0.93  # two deviations of chance below 0.95


def test_ends_stay_within_bounds() -> None:
    for win_rate in (WinRate(wins=5, ties=0, losses=0), WinRate(wins=0, ties=0, losses=5)):
        low, high = win_rate.interval
        assert 0 <= low < high <= 1
    assert WinRate(wins=0, ties=9, losses=0).p_value == 1.0
    assert WinRate(wins=3, ties=1, losses=1).rate == 0.7


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [float("nan")])])
def test_incomparable_scores_are_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(MeristemError, match=r"comparison|must be paired|not finite"):
        compute_win_rate(before, after)
