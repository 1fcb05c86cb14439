"""Membership inference: area and rates against other implementations, and intervals that hold what they promise."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.membership import attack_result

OPTIONS = ExposureOptions(resamples=200)


def attack(members, unseen):
    return attack_result(np.concatenate([members, unseen]), len(members), OPTIONS)


def test_the_area_is_that_of_mann_whitney():
    rng = np.random.default_rng(0)
    members, unseen = rng.normal(0.5, 1, 150).round(1), rng.normal(0, 1, 120).round(1)  # with ties
    result = attack(members, unseen)
    assert result.auc == pytest.approx(stats.mannwhitneyu(members, unseen).statistic / (150 * 120))
    labels = [1] * 150 + [0] * 120
    assert result.auc == pytest.approx(roc_auc_score(labels, np.concatenate([members, unseen])))


@pytest.mark.parametrize(("unseen_count", "allowed"), [(500, 0), (2000, 2)])
def test_the_rate_at_few_false_positives_is_that_of_the_best_threshold(unseen_count, allowed):
    rng = np.random.default_rng(1)
    members, unseen = rng.normal(1, 1, 400), rng.normal(0, 1, unseen_count)
    threshold = np.sort(unseen)[-1 - allowed]
    assert attack(members, unseen).tpr == pytest.approx(np.mean(members > threshold))


def test_chance_and_certainty():
    rng = np.random.default_rng(2)
    chance = attack(rng.normal(size=300), rng.normal(size=300))
    assert chance.auc_interval[0] < 0.5 < chance.auc_interval[1]
    certain = attack(np.arange(10.0, 60.0), np.arange(-50.0, 0.0))
    assert certain.auc == 1.0 and certain.tpr == 1.0
    nothing = attack(np.arange(-50.0, 0.0), np.arange(10.0, 60.0))
    assert nothing.tpr == 0.0 and nothing.tpr_interval[1] > 0.05  # none of 50 is no proof that there are none


def test_the_interval_covers_the_true_area_as_often_as_it_says():
    rng = np.random.default_rng(3)
    true_area = stats.norm.cdf(0.5 / np.sqrt(2))
    covered = 0
    for _ in range(40):
        low, high = attack(rng.normal(0.5, 1, 100), rng.normal(0, 1, 100)).auc_interval
        covered += low <= true_area <= high
    assert covered >= 33  # of 38 expected; below 33 has a probability of 2e-3
