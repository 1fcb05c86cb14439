"""Contiguous batches for models with memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.contiguous import ContiguousView
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

DRAW = SampleRng(0, 0, 0)


@pytest.fixture(scope="module")
def store(make: Callable[..., TokenDataset], generate_stories: Callable[..., list[str]]) -> TokenDataset:
    return make(generate_stories(40), shard_tokens=900)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 300), lanes=st.integers(1, 9))
def test_each_lane_reads_on_where_it_stopped(
    store: TokenDataset, tokenizer: Tokenizer, length: int, lanes: int
) -> None:
    stream = store.split("train")
    view = ContiguousView(stream, tokenizer, length, num_rows=lanes)
    assert len(view) % lanes == 0
    rows = [view.row(index, DRAW) for index in range(len(view))]
    for batch in range(0, len(rows), lanes):  # rows of one batch are alike in length: no padding
        assert len({len(row.inputs["tokens"]) for row in rows[batch : batch + lanes]}) == 1
    predicted = np.concatenate([row.inputs["tokens"][1:] for lane in range(lanes) for row in rows[lane::lanes]])
    assert predicted.tolist() == stream.tokens(1, len(stream)).tolist()[: len(predicted)]
    assert len(stream) - 1 - len(predicted) < lanes
    assert [bool(row.inputs["fresh"][0]) for row in rows] == [index < lanes for index in range(len(rows))]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("length", [7, 50])
def test_every_second_lane_may_be_read_backwards(
    store: TokenDataset, tokenizer: Tokenizer, length: int, ahead: int
) -> None:
    stream = store.split("train")
    view = ContiguousView(stream, tokenizer, length, num_rows=5, ahead=ahead, both_ways=True)
    size = (len(stream) - ahead) // 5
    for lane in range(5):
        rows = [view.row(index, DRAW) for index in range(lane, len(view), 5)]
        assert {bool(row.inputs["backwards"][0]) for row in rows} == {lane % 2 == 1}
        lane_tokens = np.concatenate([row.inputs["tokens"][: len(row.inputs["tokens"]) - ahead] for row in rows])
        text = stream.tokens(lane * size, (lane + 1) * size)
        assert lane_tokens.tolist() == (text[::-1] if lane % 2 else text).tolist()
        for row, after in pairwise(rows):  # what it looks ahead at is what its lane reads next
            assert not ahead or row.inputs["tokens"][-1] == after.inputs["tokens"][0]
    assert "backwards" not in ContiguousView(stream, tokenizer, length, num_rows=5).row(1, DRAW).inputs


def test_order_matters_to_lanes() -> None:
    assert ContiguousView.shuffled is False


def test_isolated_positions_know_their_document(make: Callable[..., TokenDataset], tokenizer: Tokenizer) -> None:
    view = ContiguousView(make(["ab", "c", "def"]).split("train"), tokenizer, 4, num_rows=1, isolate=True)
    assert view.row(1, DRAW).inputs["documents"].tolist() == [0, 1, 1, 1, 1]


def test_too_little_text_for_the_lanes_is_refused(make: Callable[..., TokenDataset], tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="3 tokens are too few for 8 rows"):
        ContiguousView(make(["ab"]).split("train"), tokenizer, 4, num_rows=8)
