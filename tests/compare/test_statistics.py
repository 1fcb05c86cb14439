"""Paired statistics: known values, error rates in simulations, and verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from meristem.compare.statistics import (
    adjust_verdicts,
    benjamini_hochberg,
    compare_paired,
    item_permutation_test,
    seeds_needed,
    sign_flip_test,
    student_test,
    t_test_power,
)


def simulated_verdicts(true_difference: float, seeds: int, comparisons: int = 1000) -> list[str]:
    """Verdicts of comparisons whose paired differences have deviation 1, beside a shared effect of the seed."""
    rng = np.random.default_rng(5)
    verdicts = []
    for _ in range(comparisons):
        shared = 10 * rng.standard_normal(seeds)
        baseline, arm = (shared + rng.standard_normal(seeds) / np.sqrt(2) for _ in range(2))
        verdicts.append(compare_paired(arm - true_difference, baseline, lower_is_better=True).verdict)
    return verdicts


def test_identical_arms_are_not_told_apart_and_true_differences_are_found() -> None:
    assert simulated_verdicts(0.0, 5).count("cannot be told apart") >= 950
    assert simulated_verdicts(2.0, 5).count("better") >= 800
    assert simulated_verdicts(-2.0, 5).count("worse") >= 800


def test_the_interval_and_p_value_are_those_of_scipy() -> None:
    differences = np.array([0.3, -0.1, 0.5, 0.2])
    low, high, p_value = student_test(differences)
    expected = stats.ttest_1samp(differences, 0.0)
    assert p_value == pytest.approx(expected.pvalue)
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval()))


def test_the_sign_follows_what_is_better() -> None:
    lower = compare_paired([1.0, 1.1, 0.9], [2.0, 2.1, 2.0], lower_is_better=True)
    higher = compare_paired([1.0, 1.1, 0.9], [2.0, 2.1, 2.0], lower_is_better=False)
    assert (lower.verdict, higher.verdict) == ("better", "worse")
    assert lower.mean_difference == pytest.approx(-(higher.mean_difference or 0))


def test_equal_values_and_too_few_seeds() -> None:
    same = compare_paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], lower_is_better=True)
    assert (same.verdict, same.p_value, same.seeds_needed) == ("cannot be told apart", 1.0, None)
    few = compare_paired([1.0, 2.0], [0.0, 1.0], lower_is_better=True)
    assert (few.verdict, few.mean_difference, few.seeds_needed) == ("not decided", -1.0, 3)
    assert compare_paired([], [], lower_is_better=True).mean_difference is None


def test_sign_flips_need_six_seeds_to_be_significant() -> None:
    assert sign_flip_test(np.ones(5)) == pytest.approx(2 / 32)
    assert sign_flip_test(np.ones(6)) == pytest.approx(2 / 64)
    assert compare_paired([1.0] * 5, [2.0, 2.1, 2.0, 2.2, 2.0], lower_is_better=True).sign_flip_p is None
    assert sign_flip_test(np.random.default_rng(0).standard_normal(20) + 2) < 0.001


def test_permutation_of_items() -> None:
    rng = np.random.default_rng(1)
    easy = rng.random(300)
    assert item_permutation_test((rng.random(300) < 0.8) * 1.0, (rng.random(300) < 0.5) * 1.0) < 0.001
    assert item_permutation_test(easy, easy) == 1.0
    p_values = [item_permutation_test(rng.random(40), rng.random(40)) for _ in range(60)]
    assert 0.3 < np.mean(p_values) < 0.7


def test_verdicts_of_a_report_are_adjusted_for_all_of_its_tests() -> None:
    rng = np.random.default_rng(7)
    weak = compare_paired([1.0, 1.3, 0.7], [0.0] * 3, lower_is_better=False)
    others = [compare_paired(rng.standard_normal(3), rng.standard_normal(3), lower_is_better=False) for _ in range(4)]
    none = compare_paired([1.0], [0.0], lower_is_better=False)
    assert weak.verdict == "better" and adjust_verdicts([weak])[0].verdict == "better"
    first, *_, last = adjust_verdicts([weak, *others, none])
    assert (first.verdict, last) == ("cannot be told apart", none)
    assert first.adjusted_p == pytest.approx(
        stats.false_discovery_control([weak.p_value, *(o.p_value for o in others)])[0]
    )
    assert first.seeds_needed is not None and first.seeds_needed <= 4


def test_benjamini_hochberg_is_that_of_scipy() -> None:
    p_values = [0.01, 0.04, 0.03, 0.5, 0.002]
    assert benjamini_hochberg(p_values) == pytest.approx(stats.false_discovery_control(p_values))


def test_the_number_of_seeds_needed_has_the_power() -> None:
    needed = seeds_needed(0.5, 1.0)
    assert needed is not None
    assert t_test_power(0.5, needed) >= 0.8 > t_test_power(0.5, needed - 1)
    assert seeds_needed(0.001, 1.0) is None and seeds_needed(0.0, 1.0) is None
