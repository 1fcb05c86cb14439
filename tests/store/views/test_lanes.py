from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.randomness import Draw
from meristem.settings import MeristemError
from meristem.store.store import Store
from meristem.store.views.lanes import Lanes
from meristem.tokenizers.tokenizer import Tokenizer

DRAW = Draw(0, 0, 0)


@pytest.fixture(scope="module")
def store(make: Callable[..., Store], tell: Callable[..., list[str]]) -> Store:
    return make(tell(40), shard_tokens=900)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 300), lanes=st.integers(1, 9))
def test_each_lane_reads_on_where_it_stopped(store: Store, tokenizer: Tokenizer, length: int, lanes: int) -> None:
    stream = store.split("train")
    view = Lanes(stream, tokenizer, length, lanes=lanes)
    assert len(view) % lanes == 0
    rows = [view.row(index, DRAW) for index in range(len(view))]
    for batch in range(0, len(rows), lanes):  # rows of one batch are alike in length: no padding
        assert len({len(row.inputs["tokens"]) for row in rows[batch : batch + lanes]}) == 1
    predicted = np.concatenate([row.inputs["tokens"][1:] for lane in range(lanes) for row in rows[lane::lanes]])
    assert predicted.tolist() == stream.tokens(1, len(stream)).tolist()[: len(predicted)]
    assert len(stream) - 1 - len(predicted) < lanes
    assert [bool(row.inputs["fresh"][0]) for row in rows] == [index < lanes for index in range(len(rows))]


def test_order_matters_to_lanes() -> None:
    assert Lanes.shuffled is False


def test_isolated_positions_know_their_document(make: Callable[..., Store], tokenizer: Tokenizer) -> None:
    view = Lanes(make(["ab", "c", "def"]).split("train"), tokenizer, 4, lanes=1, isolate=True)
    assert view.row(1, DRAW).inputs["documents"].tolist() == [0, 1, 1, 1, 1]


def test_too_little_text_for_the_lanes_is_refused(make: Callable[..., Store], tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="3 tokens are too few for 8 lanes"):
        Lanes(make(["ab"]).split("train"), tokenizer, 4, lanes=8)
