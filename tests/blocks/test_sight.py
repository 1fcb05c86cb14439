from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meristem.blocks.sight import Scene


def scene(**facts: Any) -> Scene:
    return Scene(**{"dtype": torch.float32, "device": torch.device("cpu"), "causal": False, **facts})


def test_plain_scenes_need_no_mask() -> None:
    assert scene(queries=4, keys=4).sight().mask is None
    assert not scene(queries=4, keys=4).sight().causal
    assert scene(queries=4, keys=4, causal=True).sight().causal
    assert scene(queries=4, keys=4, causal=True).sight(window=4).mask is None


def test_one_new_token_sees_the_whole_past_without_a_mask() -> None:
    one = scene(queries=1, keys=9, causal=True).sight()
    assert one.mask is None
    assert not one.causal


@given(
    time=st.integers(1, 7), causal=st.booleans(), window=st.none() | st.integers(1, 8),
    lengths=st.none() | st.lists(st.integers(1, 7), min_size=2, max_size=2),
    documents=st.none() | st.lists(st.lists(st.integers(0, 2), min_size=7, max_size=7), min_size=2, max_size=2),
)
def test_a_mask_is_what_its_facts_say(
    time: int, causal: bool, window: int | None, lengths: list[int] | None, documents: list[list[int]] | None
) -> None:
    present = None if lengths is None else torch.arange(time)[None] < torch.tensor(lengths)[:, None]
    groups = None if documents is None else torch.tensor(documents)[:, :time]
    sight = scene(queries=time, keys=time, causal=causal, present=present, documents=groups).sight(window)
    for row in range(2):
        for query in range(time):
            for key in range(time):
                seen = not (causal and key > query) and (window is None or abs(query - key) < window)
                seen = seen and (present is None or bool(present[row, key]))
                seen = seen and (groups is None or bool(groups[row, query] == groups[row, key]))
                seen = seen or query == key  # a position always sees itself, so that padding stays finite
                if sight.mask is None:
                    assert seen == (not sight.causal or key <= query)
                else:
                    mask = sight.mask.expand(2, 1, time, time)
                    assert (mask[row, 0, query, key] == 0) == seen


def test_rows_that_stand_at_different_places_see_their_own_past() -> None:
    at = torch.tensor([[2, 3], [5, 6]])
    mask = scene(queries=2, keys=7, causal=True, positions=at).sight().mask
    assert mask is not None
    assert (mask[:, 0] == 0).sum(-1).tolist() == [[3, 4], [6, 7]]


@pytest.mark.parametrize("queries", [2, 5])
def test_new_tokens_are_the_last_of_the_keys(queries: int) -> None:
    mask = scene(queries=queries, keys=6, causal=True).sight().mask
    assert mask is not None
    assert (mask[0, 0] == 0).sum(-1).tolist() == list(range(7 - queries, 7))
