"""Rows of the small store, as a view gives them and an objective hides them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meristem.dataset.dataset_view import DATASET_VIEWS
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Row
from meristem.interfaces.objective import OBJECTIVES, Objective
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Prepared = Iterator[tuple[Row, list[Row]]]


@pytest.fixture(scope="session")
def make(tokenizer: Tokenizer) -> Callable[..., Any]:
    """An objective with these settings."""

    def make_objective(name: str, **settings: Any) -> Objective:
        kind = OBJECTIVES[name]
        return kind(kind.Settings(**settings), tokenizer)  # type: ignore[no-any-return]  # found by name

    return make_objective


@pytest.fixture(scope="session")
def prepared(tokenizer: Tokenizer, store: TokenDataset) -> Callable[..., Prepared]:
    """Every row of some epochs, before and after it was prepared."""

    def run(objective: Objective, *, epochs: int = 1, max_length: int = 48, seed: int = 0) -> Prepared:
        view = DATASET_VIEWS[objective.view.kind](
            store.split("train"), tokenizer, max_length, **dict(objective.view.options)
        )
        for epoch in range(epochs):
            for index in range(len(view)):
                draw = SampleRng(seed, epoch, index)
                row = view.row(index, draw)
                prepared = objective.prepare(row, draw)
                yield row, prepared if isinstance(prepared, list) else [prepared]

    return run
