"""distinct-1 and distinct-2, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.metrics.distinct_ngrams import distinct_metrics, distinct_resampler

SAID = ["a b a", "a b", "", "船在 水"]


def test_distinct_words_and_pairs() -> None:
    assert distinct_metrics(SAID) == {"distinct1": 5 / 8, "distinct2": 4 / 5}
    assert distinct_metrics(["", ""]) == {"distinct1": 0.0, "distinct2": 0.0}
    assert distinct_metrics(["no idea"] * 50)["distinct1"] == 2 / 100


@pytest.mark.parametrize("sample_indices", [[0, 0, 1], [3, 3], [2], [1, 2, 3, 0]])
def test_a_resampled_set_is_counted_as_if_it_were_written_so(sample_indices: list[int]) -> None:
    assert distinct_resampler(SAID)(np.array(sample_indices)) == pytest.approx(
        distinct_metrics([SAID[number] for number in sample_indices])
    )
