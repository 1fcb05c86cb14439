"""Counted features: stable buckets, weights of unit norm, and no repetition."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.data.ngram_features import hash_features, hashed_counts, text_features, word_features


def test_buckets_are_the_same_on_every_machine() -> None:
    assert hash_features(["film", "电影", "the film"], 1 << 18).tolist() == [48674, 128069, 102994]
    assert hash_features(["lone \ud800 surrogate"], 16)[0] < 16


def test_a_text_has_one_weight_per_distinct_feature() -> None:
    buckets, weights = hashed_counts(text_features(("good good film",)), 1 << 18)
    assert len(set(buckets.tolist())) == len(buckets) == 4  # good, film, "good good", "good film"
    assert np.linalg.norm(weights) == pytest.approx(1.0)
    twice = weights[buckets.tolist().index(hash_features(["good"], 1 << 18)[0])]
    assert twice / weights.min() == pytest.approx(1 + np.log(2))
    assert [array.size for array in hashed_counts([], 1 << 18)] == [0, 0]


def test_features_of_a_word_change_with_its_neighbours() -> None:
    first, second = (set(list(word_features(words))[1]) for words in (["the", "walk"], ["they", "walk"]))
    assert {"w walk", "suffix lk"} <= first & second
    assert first ^ second
