"""The rows of a reward run's table: means with their spread, and what became of the texts."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.drawing.rewards_numbers import SHOWN, drifted, scored
from meristem.metrics.hacking import Texts, intervals, measured
from meristem.settings import MeristemError


def test_a_score_has_its_mean_and_interval() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(0.0, 1.0, 400).tolist(), rng.normal(1.0, 2.0, 400).tolist()
    row = scored("judge", before, after, better="lower", meaning="of another model")
    assert (row.before, row.after) == pytest.approx((np.mean(before), np.mean(after)))
    assert row.before_interval and row.after_interval
    for (low, high), values in ((row.before_interval, before), (row.after_interval, after)):
        assert low < np.mean(values) < high
        assert high - low == pytest.approx(2 * 1.96 * np.std(values) / 20, rel=0.15)
    assert (row.better, row.meaning) == ("lower", "of another model")
    with pytest.raises(MeristemError, match="no samples"):
        scored("judge", [], [])


def test_texts_have_their_numbers_and_most_an_interval() -> None:
    rng = np.random.default_rng(1)
    words = np.array([f"w{number}" for number in range(200)])
    sets = [
        Texts(
            prompts=[f"p{number}" for number in range(80)],
            texts=[" ".join(rng.choice(words, rng.integers(size // 2, size))) for _ in range(80)],
        )
        for size in (30, 90)
    ]
    rows = {row.name: row for row in drifted(*sets)}
    found, sure = measured(*sets), intervals(*sets)
    assert list(rows) == list(SHOWN)
    for name, row in rows.items():
        assert (row.before, row.after) == found[name] and row.meaning
        assert (row.before_interval is None) == (name in ("distinct2", "alike", "duplicates"))
    length = np.array([len(text.split()) for text in sets[0].texts])
    low, high = sure["length"][0]
    assert low < length.mean() < high and high - low == pytest.approx(2 * 1.96 * length.std() / 80**0.5, rel=0.15)
    assert sure["within2"][0][0] <= found["within2"][0] <= sure["within2"][0][1]
