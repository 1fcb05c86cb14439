from __future__ import annotations

import torch

from meristem.blocks.incremental.state_concat import concat_inputs, concat_states


def state(rows: int, num_positions: int) -> dict[str, torch.Tensor]:
    return {"values": torch.randn(rows, num_positions, 4), "next": torch.arange(rows)}


def test_rows_are_concatenated() -> None:
    first, other = state(2, 3), state(1, 3)
    concatenated = concat_states(first, other, pad_dims={"values": 1})
    assert set(concatenated) == {"values", "next"}  # all places exist, which nobody need be told
    assert torch.equal(concatenated["values"], torch.cat([first["values"], other["values"]]))
    assert concatenated["next"].tolist() == [0, 1, 0]


def test_shorter_sources_are_padded_and_masked() -> None:
    first, other = state(2, 3), state(1, 5)
    concatenated = concat_states(first, other, pad_dims={"values": 1, "present": 1})
    assert concatenated["values"].shape == (3, 5, 4)
    assert concatenated["present"].tolist() == [[True] * 3 + [False] * 2] * 2 + [[True] * 5]
    concatenated_again = concat_states(concatenated, state(1, 2), pad_dims={"values": 1, "present": 1})
    assert concatenated_again["present"].sum(1).tolist() == [3, 3, 5, 2]
    assert torch.equal(concatenated_again["values"][0, :3], first["values"][0])


def test_inputs_get_a_padding_mask_only_where_lengths_differ() -> None:
    short, long = torch.ones(1, 2, dtype=torch.long), torch.ones(2, 4, dtype=torch.long)
    assert set(concat_inputs({"source": long}, {"source": long})) == {"source"}
    concatenated = concat_inputs({"source": short}, {"source": long})
    assert concatenated["source"].shape == (3, 4)
    assert concatenated["source_present"].sum(1).tolist() == [2, 4, 4]
    concatenated_again = concat_inputs(concatenated, {"source": long})
    assert concatenated_again["source_present"].sum(1).tolist() == [2, 4, 4, 4, 4]
