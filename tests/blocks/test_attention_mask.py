from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meristem.blocks.attention.attention_mask import MaskSpec


def mask_spec(**facts: Any) -> MaskSpec:
    return MaskSpec(**{"dtype": torch.float32, "device": torch.device("cpu"), "causal": False, **facts})


def test_plain_specs_need_no_mask() -> None:
    assert mask_spec(num_queries=4, num_keys=4).build_mask().additive_mask is None
    assert not mask_spec(num_queries=4, num_keys=4).build_mask().is_causal
    assert mask_spec(num_queries=4, num_keys=4, causal=True).build_mask().is_causal
    assert mask_spec(num_queries=4, num_keys=4, causal=True).build_mask(window=4).additive_mask is None


def test_one_new_token_sees_the_whole_past_without_a_mask() -> None:
    mask = mask_spec(num_queries=1, num_keys=9, causal=True).build_mask()
    assert mask.additive_mask is None
    assert not mask.is_causal


@given(
    time=st.integers(1, 7),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 8),
    lengths=st.none() | st.lists(st.integers(1, 7), min_size=2, max_size=2),
    documents=st.none() | st.lists(st.lists(st.integers(0, 2), min_size=7, max_size=7), min_size=2, max_size=2),
)
def test_a_mask_follows_its_spec(
    time: int, causal: bool, window: int | None, lengths: list[int] | None, documents: list[list[int]] | None
) -> None:
    present = None if lengths is None else torch.arange(time)[None] < torch.tensor(lengths)[:, None]
    groups = None if documents is None else torch.tensor(documents)[:, :time]
    attention_mask = mask_spec(
        num_queries=time, num_keys=time, causal=causal, present=present, documents=groups
    ).build_mask(window)
    for row in range(2):
        for query in range(time):
            for key in range(time):
                visible = not (causal and key > query) and (window is None or abs(query - key) < window)
                visible = visible and (present is None or bool(present[row, key]))
                visible = visible and (groups is None or bool(groups[row, query] == groups[row, key]))
                visible = visible or query == key  # a position always sees itself, so that padding stays finite
                if attention_mask.additive_mask is None:
                    assert visible == (not attention_mask.is_causal or key <= query)
                else:
                    mask = attention_mask.additive_mask.expand(2, 1, time, time)
                    assert (mask[row, 0, query, key] == 0) == visible


def test_rows_at_different_positions_see_their_own_past() -> None:
    query_positions = torch.tensor([[2, 3], [5, 6]])
    mask = mask_spec(num_queries=2, num_keys=7, causal=True, query_positions=query_positions).build_mask().additive_mask
    assert mask is not None
    assert (mask[:, 0] == 0).sum(-1).tolist() == [[3, 4], [6, 7]]


@pytest.mark.parametrize("queries", [2, 5])
def test_new_tokens_are_the_last_of_the_keys(queries: int) -> None:
    mask = mask_spec(num_queries=queries, num_keys=6, causal=True).build_mask().additive_mask
    assert mask is not None
    assert (mask[0, 0] == 0).sum(-1).tolist() == list(range(7 - queries, 7))
