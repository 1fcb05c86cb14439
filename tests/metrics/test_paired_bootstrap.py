"""The paired bootstrap: its coverage, and no claims for few or equal scores."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.metrics.paired_bootstrap import MIN_PAIRS, paired_difference


def test_without_a_difference_it_is_claimed_about_one_time_in_twenty() -> None:
    draws = np.random.default_rng(0)
    claims = 0
    for _ in range(400):
        hard = draws.normal(0, 3, 40)
        difference = paired_difference(*(list(hard + draws.normal(0, 1, 40)) for _ in range(2)))
        claims += bool(difference.direction)
    assert 400 * 0.02 < claims < 400 * 0.10


def test_what_items_share_does_not_hide_a_difference() -> None:
    draws = np.random.default_rng(1)
    hard = draws.normal(0, 10, 64)
    before, after = list(hard), list(hard + 0.3 + draws.normal(0, 0.5, 64))
    difference = paired_difference(before, after)
    assert difference.direction == "rose" and 0 < difference.low < difference.mean < difference.high < 0.6
    assert paired_difference(after, before).direction == "fell"
    assert paired_difference(before, sorted(after)).direction == ""  # other partners


def test_few_pairs_claim_nothing_and_unpaired_scores_are_refused() -> None:
    assert paired_difference([0.0] * (MIN_PAIRS - 1), [1.0] * (MIN_PAIRS - 1)).direction == ""
    assert paired_difference([0.0] * MIN_PAIRS, [1.0] * MIN_PAIRS).direction == "rose"
    assert paired_difference([1.0] * MIN_PAIRS, [1.0] * MIN_PAIRS).direction == ""
    with pytest.raises(MeristemError, match="2 scores before, but 1 after"):
        paired_difference([0.0, 1.0], [1.0])
