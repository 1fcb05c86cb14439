from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Row
from meristem.utils.randomness import SampleRng


def test_every_token_of_an_epoch_is_predicted_exactly_once(
    make: Callable[..., Any], prepared: Callable[..., Any], store: TokenDataset
) -> None:
    stream = store.split("train")
    targets = np.concatenate([after.targets["clm"]["values"] for _, (after,) in prepared(make("clm"), max_length=19)])
    assert np.array_equal(targets, stream.tokens(1, len(stream)))


def test_inputs_are_all_but_the_last_and_targets_all_but_the_first(make: Callable[..., Any]) -> None:
    row = Row(
        inputs={"tokens": np.array([5, 6, 7, 8]), "documents": np.array([0, 0, 1, 1]), "fresh": np.array([True])},
        metadata={"special": np.zeros(4, bool)},
    )
    prepared_row = make("clm").prepare(row, SampleRng(0, 0, 0))
    assert prepared_row.inputs["tokens"].tolist() == [5, 6, 7]
    assert prepared_row.inputs["documents"].tolist() == [0, 0, 1]
    assert prepared_row.inputs["fresh"].tolist() == [True]
    assert prepared_row.targets["clm"]["at"].tolist() == [0, 1, 2]
    assert prepared_row.targets["clm"]["values"].tolist() == [6, 7, 8]
    assert len(prepared_row.metadata["special"]) == 3
