"""How often one of two texts is better: the win rate, how sure it is, and whether it could be chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from meristem.errors import MeristemError
from meristem.metrics.proportions import wilson


@dataclass(frozen=True, kw_only=True)
class Winning:
    """What became of all comparisons, seen from the challenger."""

    wins: int
    ties: int
    losses: int

    def __post_init__(self) -> None:
        if min(self.wins, self.ties, self.losses) < 0 or not self.compared:
            raise MeristemError(
                f"a win rate needs at least one comparison: {self.wins} won, {self.ties} tied, {self.losses} lost"
            )

    @property
    def compared(self) -> int:
        """How many there were."""
        return self.wins + self.ties + self.losses

    @property
    def rate(self) -> float:
        """The share won, a tie counting half."""
        return (self.wins + self.ties / 2) / self.compared

    @property
    def interval(self) -> tuple[float, float]:
        """95 % by Wilson's score (1927), which stays within 0 and 1; ties vary less, so that they make it too wide."""
        return wilson(self.rate, self.compared)

    @property
    def chance(self) -> float:
        """p of the two-sided sign test: how often a fair coin is as uneven; ties tell nothing and are left out."""
        decided, fewer = self.wins + self.losses, min(self.wins, self.losses)
        ways = summed = 1
        for lost in range(fewer):
            ways = ways * (decided - lost) // (lost + 1)  # how many sequences of coins lose once more
            summed += ways
        return min(1.0, 2 * summed / (1 << decided))

    def plain(self) -> dict[str, float]:
        """Every number by name."""
        low, high = self.interval
        return {
            "wins": self.wins,
            "ties": self.ties,
            "losses": self.losses,
            "win_rate": self.rate,
            "low": low,
            "high": high,
            "p": self.chance,
        }


def winning(before: Sequence[float], after: Sequence[float], *, tie: float = 0.0) -> Winning:
    """Compare scores place by place; those that differ by no more than `tie` are equal."""
    if len(before) != len(after):
        raise MeristemError(f"there are {len(before)} scores before and {len(after)} after; each needs its partner")
    gains = [new - old for old, new in zip(before, after, strict=True)]
    if not all(map(isfinite, gains)):
        raise MeristemError("a score that is no number cannot be compared")
    wins, losses = sum(gain > tie for gain in gains), sum(gain < -tie for gain in gains)
    return Winning(wins=wins, ties=len(gains) - wins - losses, losses=losses)
