"""Win rate of paired comparisons, with Wilson's confidence interval and a sign test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from meristem.config.errors import MeristemError
from meristem.metrics.proportion_intervals import wilson_interval


@dataclass(frozen=True, kw_only=True)
class WinRate:
    """Counts of wins, ties and losses, from the point of view of the challenger."""

    wins: int
    ties: int
    losses: int

    def __post_init__(self) -> None:
        if min(self.wins, self.ties, self.losses) < 0 or not self.total:
            raise MeristemError(
                f"a win rate needs at least one comparison: {self.wins} won, {self.ties} tied, {self.losses} lost"
            )

    @property
    def total(self) -> int:
        """Number of comparisons."""
        return self.wins + self.ties + self.losses

    @property
    def rate(self) -> float:
        """The share won, ties counting half."""
        return (self.wins + self.ties / 2) / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson score interval (1927), within 0 and 1; with ties it is wider than necessary."""
        return wilson_interval(self.rate, self.total)

    @property
    def p_value(self) -> float:
        """p of the two-sided sign test; ties are left out."""
        decided, minority = self.wins + self.losses, min(self.wins, self.losses)
        combinations = cumulative = 1
        for step in range(minority):
            combinations = combinations * (decided - step) // (step + 1)  # binomial coefficient of one loss more
            cumulative += combinations
        return min(1.0, 2 * cumulative / (1 << decided))


def compute_win_rate(before: Sequence[float], after: Sequence[float], *, tie_margin: float = 0.0) -> WinRate:
    """Compare paired scores; differences of at most `tie_margin` are ties."""
    if len(before) != len(after):
        raise MeristemError(f"{len(before)} scores before, but {len(after)} after; they must be paired")
    gains = [new - old for old, new in zip(before, after, strict=True)]
    if not all(map(isfinite, gains)):
        raise MeristemError("cannot compare scores that are not finite")
    wins, losses = sum(gain > tie_margin for gain in gains), sum(gain < -tie_margin for gain in gains)
    return WinRate(wins=wins, ties=len(gains) - wins - losses, losses=losses)
