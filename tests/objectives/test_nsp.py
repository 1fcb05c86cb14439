from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.objectives.nsp import NSPObjective, NSPObjectiveSettings


@pytest.mark.parametrize(("rate", "negatives"), [(0.5, "other"), (0.5, "swap"), (0.2, "other")])
def test_half_of_the_pairs_are_wrong(
    make: Callable[..., Any], prepared: Callable[..., Any], rate: float, negatives: str
) -> None:
    rows = [
        after
        for _, (after,) in prepared(make("nsp", negative_rate=rate, negatives=negatives), epochs=25, max_length=32)
    ]
    labels = np.concatenate([row.targets["nsp"]["values"] for row in rows])
    assert len(labels) > 2500
    assert labels.mean() == pytest.approx(rate, abs=0.035)  # three and a half standard deviations
    assert all(row.targets["nsp"]["at"].tolist() == [0] for row in rows)


def test_the_label_is_in_the_targets_and_nowhere_else(make: Callable[..., Any], prepared: Callable[..., Any]) -> None:
    for before, (after,) in prepared(make("nsp")):
        assert after.inputs.keys() == {"tokens", "segments"}
        assert after.targets["nsp"]["values"].tolist() == [before.metadata["pair"]]


def test_settings_choose_the_view(make: Callable[..., Any]) -> None:
    view = make("nsp", negatives="swap", negative_rate=0.3).view
    assert (view.kind, dict(view.options)) == ("pairs", {"negatives": "swap", "rate": 0.3})


def test_a_tokenizer_without_a_start_is_refused() -> None:
    class Bare:
        start = end = None

    with pytest.raises(MeristemError, match="no start and separator tokens"):
        NSPObjective(NSPObjectiveSettings(), Bare())  # type: ignore[arg-type]  # that is the point
