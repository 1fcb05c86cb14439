"""Paired statistics of a comparison: Student intervals over seeds, permutation and sign-flip tests, verdicts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.utils.randomness import generator

LEVEL = 0.035
"""Level of verdicts. At 0.05, five of a hundred comparisons of identical arms are told apart on average, so more than
five of every third hundred; at 0.035, five seeds still find two deviations in 85 of a hundred
(`python -m benchmarks.compare_statistics`)."""
CONFIDENCE = 0.95
"""Of intervals."""
POWER = 0.8
"""Probability with which the stated number of seeds finds a difference as large as the measured one."""
MIN_SEEDS = 3
"""Fewest paired seeds for a verdict."""
MIN_SIGN_FLIP_SEEDS = 6
"""Fewest seeds for a sign-flip test: with five, the smallest two-sided p-value is 2/32 = 0.0625."""
MAX_SEEDS_NEEDED = 1000
"""Numbers of seeds above this are not computed."""
NUM_PERMUTATIONS = 10_000
IDENTICAL = 1e-12
"""Differences below this share of the values are rounding."""

Verdict = Literal["better", "worse", "cannot be told apart", "not decided"]


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """One measure of two arms over the seeds they share; a positive difference means that the arm is better."""

    seeds: int
    mean_difference: float | None
    """Mean of arm − baseline over seeds, its sign turned where lower values are better."""
    interval: tuple[float, float] | None
    """95 % Student interval of the mean difference."""
    p_value: float | None
    """Of the paired t-test."""
    sign_flip_p: float | None
    """Of the exact sign-flip test over seeds, from six seeds on."""
    item_p: float | None = None
    """Of the permutation test over items, where items exist."""
    verdict: Verdict
    seeds_needed: int | None = None
    """Seeds that would find a difference of the measured size in a test by itself; None above 1,000."""
    adjusted_p: float | None = None
    """The p-value adjusted for all tests of a report; None before that."""


def compare_paired(
    arm: Sequence[float], baseline: Sequence[float], *, lower_is_better: bool, item_p: float | None = None
) -> PairedComparison:
    """Paired comparison of an arm with the baseline: one value per shared seed, in the same order."""
    if len(arm) != len(baseline):
        raise MeristemError(f"{len(arm)} values of one arm and {len(baseline)} of the other: they must be paired")
    difference = np.asarray(arm, np.float64) - np.asarray(baseline, np.float64)
    difference = -difference if lower_is_better else difference
    if len(difference) < MIN_SEEDS:
        mean = float(difference.mean()) if len(difference) else None
        return PairedComparison(
            seeds=len(difference), mean_difference=mean, interval=None, p_value=None, sign_flip_p=None, item_p=item_p,
            verdict="not decided", seeds_needed=MIN_SEEDS,
        )  # fmt: skip
    scale = float(np.abs([*arm, *baseline]).max())
    low, high, p_value = student_test(difference, tolerance=IDENTICAL * scale)
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    significant = p_value < LEVEL
    return PairedComparison(
        seeds=len(difference),
        mean_difference=mean,
        interval=(low, high),
        p_value=p_value,
        sign_flip_p=sign_flip_test(difference) if len(difference) >= MIN_SIGN_FLIP_SEEDS else None,
        item_p=item_p,
        verdict=("better" if mean > 0 else "worse") if significant else "cannot be told apart",
        seeds_needed=seeds_needed(mean, deviation),
    )


def student_test(differences: NDArray[np.float64], *, tolerance: float = 0.0) -> tuple[float, float, float]:
    """95 % Student interval of the mean, and the p-value of the paired t-test.

    Where all differences agree within the tolerance, the interval has no width; equal arms then have p = 1.
    """
    stats = _scipy_stats()
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(len(differences))
    if error <= tolerance:
        return mean, mean, 1.0 if abs(mean) <= tolerance else 0.0
    half_width = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, len(differences) - 1))
    return mean - half_width, mean + half_width, p_value


def sign_flip_test(differences: NDArray[np.float64]) -> float:
    """Exact two-sided p-value of the mean under all flips of signs; sampled where there are more than 2^13."""
    observed = abs(differences.sum())
    if len(differences) <= 13:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(differences))))
    else:
        rng = generator(0, "sign flip test", 0, 0)
        signs = rng.choice((-1.0, 1.0), (NUM_PERMUTATIONS, len(differences)))
        signs[0] = 1.0
    return float((np.abs(signs @ differences) >= observed - 1e-12 * max(1.0, observed)).mean())


def item_permutation_test(arm: NDArray[np.float64], baseline: NDArray[np.float64]) -> float:
    """Two-sided p-value of the mean difference over items: each item's two scores are exchanged at random.

    Scores [items] are means over seeds, so the test speaks of other items, not of other seeds.
    """
    differences = arm - baseline
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    rng, observed = generator(0, "item permutation test", 0, 0), abs(float(differences.sum()))
    extreme = sum(
        int((np.abs(rng.choice((-1.0, 1.0), (100, len(differences))) @ differences) >= observed - 1e-9).sum())
        for _ in range(NUM_PERMUTATIONS // 100)
    )
    return (extreme + 1) / (NUM_PERMUTATIONS + 1)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that control the false discovery rate (Benjamini and Hochberg 1995), in the given order."""
    if not p_values:
        return []
    order = np.argsort(p_values)
    adjusted = np.asarray(p_values, np.float64)[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    adjusted = np.minimum.accumulate(adjusted[::-1])[::-1].clip(max=1.0)
    result = np.empty(len(p_values))
    result[order] = adjusted
    return [float(value) for value in result]


def adjust_verdicts(comparisons: Sequence[PairedComparison]) -> list[PairedComparison]:
    """The comparisons of one report with verdicts by p-values that are adjusted for all of its tests."""
    tested = [comparison.p_value for comparison in comparisons if comparison.p_value is not None]
    adjusted = iter(benjamini_hochberg(tested))
    return [
        comparison if comparison.p_value is None else _with_adjusted_p(comparison, next(adjusted))
        for comparison in comparisons
    ]


def _with_adjusted_p(comparison: PairedComparison, adjusted_p: float) -> PairedComparison:
    if adjusted_p < LEVEL:
        return replace(comparison, adjusted_p=adjusted_p)
    return replace(comparison, adjusted_p=adjusted_p, verdict="cannot be told apart")


def seeds_needed(mean: float, deviation: float) -> int | None:
    """Fewest seeds whose paired t-test finds this mean difference with 80 % power; None above `MAX_SEEDS_NEEDED`."""
    if deviation == 0 or mean == 0:
        return None
    effect = abs(mean) / deviation
    if t_test_power(effect, MAX_SEEDS_NEEDED) < POWER:
        return None
    low, high = MIN_SEEDS, MAX_SEEDS_NEEDED
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if t_test_power(effect, middle) >= POWER else (middle + 1, high)
    return low


def t_test_power(effect: float, seeds: int) -> float:
    """Power of a two-sided paired t-test for an effect in deviations of the paired differences."""
    stats = _scipy_stats()
    critical = float(stats.t.ppf(1 - LEVEL / 2, seeds - 1))
    noncentrality = effect * math.sqrt(seeds)
    upper, lower = (float(stats.nct.sf(sign * critical, seeds - 1, noncentrality)) for sign in (1, -1))
    return upper + 1 - lower


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise MeristemError('comparisons need SciPy: pip install "meristem-lm[metrics]"') from None
    return stats
