"""Exposure: uniform for texts that were never seen, and the tail of the fitted distribution beyond the candidates."""

import math

import numpy as np
import pytest
from scipy import stats

from meristem.trust.exposure.rank_exposure import EXPECTED_UNSEEN_BITS, CandidateDistribution

SPACE = 2**60


def test_unseen_texts_have_the_expected_bits():
    rng = np.random.default_rng(0)
    bits = []
    for _ in range(40):
        values = rng.normal(-30, 4, 1100)
        distribution = CandidateDistribution(values[:1000], SPACE)
        bits += [distribution.rank(float(value)).bits for value in values[1000:]]
    error = np.std(bits) / math.sqrt(len(bits))
    assert abs(np.mean(bits) - EXPECTED_UNSEEN_BITS) < 4 * error + 0.01
    assert error < 0.03


@pytest.mark.parametrize(("better", "bits"), [(0, None), (1, -math.log2(2 / 101)), (99, -math.log2(100 / 101))])
def test_within_the_candidates_the_rank_counts(better, bits):
    values = np.random.default_rng(1).permutation(np.arange(100.0))
    ranked = CandidateDistribution(values, SPACE).rank(99.5 - better)
    assert ranked.rank == better + 1
    assert ranked.estimated == (better == 0)
    assert bits is None or ranked.bits == pytest.approx(bits)


def test_of_equal_candidates_half_count_as_better():
    values = np.array([1.0] * 10 + [0.0] * 10)
    assert CandidateDistribution(values, SPACE).rank(1.0).bits == pytest.approx(-math.log2(6 / 21))


@pytest.mark.parametrize("deviations", [5, 6, 8])
@pytest.mark.parametrize("shape", [0.0, -3.0, 3.0])
def test_beyond_the_candidates_the_fitted_tail_counts(deviations, shape):
    """The estimate from 2,000 candidates against the true distribution, within a fifth."""
    true = stats.skewnorm(shape, -40, 5)
    values = true.rvs(2000, random_state=3)
    value = float(true.mean() + deviations * true.std())
    distribution = CandidateDistribution(values, 2**200)
    density = true.logpdf(value + 5 * np.linspace(0, 40, 400_001))
    expected = -(np.log(np.trapezoid(np.exp(density - density.max()), dx=5e-4)) + density.max()) / math.log(2)
    ranked = distribution.rank(value)
    assert ranked.estimated and ranked.rank == 1
    assert ranked.bits == pytest.approx(expected, rel=0.2)
    assert distribution.fit_distance < 0.035


def test_the_integrated_tail_is_that_of_scipy():
    distribution = CandidateDistribution(stats.norm(0, 1).rvs(500, random_state=0), SPACE)
    shape, location, scale = distribution.fit
    for value in (0.0, 1.0, 3.0):
        expected = -math.log2(stats.skewnorm.sf(value, shape, location, scale))
        assert distribution.tail_bits(value) == pytest.approx(expected, abs=1e-4)


def test_exposure_ends_at_the_size_of_the_space():
    values = stats.norm(0, 1).rvs(300, random_state=0)
    assert CandidateDistribution(values, 1000).rank(50.0).bits == pytest.approx(math.log2(1000))


def test_candidates_that_look_the_same_to_the_model_are_noticed():
    assert CandidateDistribution(np.full(20, -3.0), SPACE).is_constant
    assert not CandidateDistribution(np.array([-3.0, -3.1]), SPACE).is_constant
