from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import Hidden
from meristem.interfaces.objective import Objective, Outcome


class Words(Objective):
    """Predicts what rows say it should."""

    name, requires, heads, loss_weights = "words", frozenset(), {}, {"words": 1.0, "pairs": 2.0}

    def __init__(self, settings: Any = None, tokenizer: Any = None) -> None:
        pass

    def prepare(self, row: Row, draw: Any) -> Row:
        return row

    def loss(self, model: Any, hidden: Hidden, batch: Batch) -> Outcome:
        raise NotImplementedError


def row(tokens: list[int], positions: list[int], sample: int = 0, **extra_targets: Any) -> Row:
    ids = np.array(tokens)
    position_array = np.array(positions, np.int64)
    return Row(
        inputs={"tokens": ids, "segments": ids * 0 + 1},
        targets={"words": {"at": position_array, "values": ids[position_array]}, **extra_targets},
        metadata={"first": tokens[0]},
        sample_id=sample,
    )


def test_rows_of_one_length_are_stacked_without_a_mask() -> None:
    batch = collate([row([1, 2, 3], [0]), row([4, 5, 6], [1, 2], sample=1)], Words(), {})
    assert batch.inputs["tokens"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert "present" not in batch.inputs
    assert batch.num_tokens == 6


def test_ragged_rows_are_filled_and_present_says_where() -> None:
    batch = collate([row([1, 2, 3], [2]), row([4], [0], sample=1)], Words(), {"tokens": 9})
    assert batch.inputs["tokens"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert batch.inputs["segments"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.inputs["present"].tolist() == [[True] * 3, [True, False, False]]
    assert batch.num_tokens == 4


def test_an_input_with_an_axis_of_its_own_is_filled_by_itself() -> None:
    def two_sided(source: list[int], tokens: list[int]) -> Row:
        base_row = row(tokens, [0])
        return Row(inputs={**base_row.inputs, "source": np.array(source)}, targets=base_row.targets)

    batch = collate([two_sided([1, 2, 3], [4, 5]), two_sided([6], [7, 8])], Words(), {"source": 9})
    assert batch.inputs["source"].tolist() == [[1, 2, 3], [6, 9, 9]]
    assert batch.inputs["source_present"].tolist() == [[True] * 3, [True, False, False]]
    assert "present" not in batch.inputs
    batch = collate([two_sided([1, 2], [4, 5, 6]), two_sided([6, 7], [7])], Words(), {})
    assert "source_present" not in batch.inputs
    assert batch.inputs["present"].tolist() == [[True] * 3, [True, False, False]]
    assert batch.num_tokens == 8  # source and target


def test_positions_are_moved_by_their_rows_offset() -> None:
    batch = collate([row([1, 2, 3], [0, 2]), row([4, 5], [1], sample=1), row([6, 7, 8], [], sample=2)], Words(), {})
    targets = batch.targets["words"]
    assert targets["at"].tolist() == [0, 2, 4]
    assert batch.inputs["tokens"].flatten()[targets["at"]].tolist() == targets["values"].tolist() == [1, 3, 5]
    hidden = Hidden(last_hidden_state=torch.arange(18.0).view(3, 3, 2))
    assert hidden.select(targets["at"]).tolist() == [[0, 1], [4, 5], [8, 9]]


def test_a_term_that_only_some_rows_have() -> None:
    pair = {"at": np.array([0]), "values": np.array([1])}
    batch = collate([row([1, 2], [0]), row([3, 4], [], sample=1, pairs=pair)], Words(), {})
    assert batch.targets["pairs"]["at"].tolist() == [2]
    assert batch.target_counts == {"words": 1, "pairs": 1}


def test_counts_are_of_this_objectives_terms_only() -> None:
    other = {"at": np.array([0]), "values": np.array([1])}
    batch = collate([row([1, 2], [0, 1], elsewhere=other)], Words(), {})
    assert batch.target_counts == {"words": 2, "pairs": 0}  # a term of its own that no row has counts as none
    assert "elsewhere" in batch.targets


def test_several_rows_of_one_sample_share_their_owner() -> None:
    batch = collate([row([1, 2], [0], sample=40), row([1, 2], [1], sample=40), row([3, 4], [0], sample=7)], Words(), {})
    assert batch.sample_index.tolist() == [0, 0, 1]
    assert batch.sample_ids == [40, 7]
    assert [note["first"] for note in batch.metadata] == [1, 1, 3]


def test_the_prediction_axis_may_be_another_input() -> None:
    class Slots(Words):
        axis = "slots"

    rows = [
        Row(
            inputs={"tokens": np.arange(5), "slots": np.arange(2)},
            targets={"words": {"at": np.array([1])}},
            sample_id=n,
        )
        for n in range(2)
    ]
    batch = collate(rows, Slots(), {})
    assert batch.targets["words"]["at"].tolist() == [1, 3]
    assert batch.num_tokens == 10  # what is read counts, not what is predicted


def test_vectors_per_position_keep_their_shape_when_filled() -> None:
    rows = [Row(inputs={"tokens": np.arange(n), "letters": np.ones((n, 4), np.int64)}, sample_id=n) for n in (1, 3)]
    batch = collate(rows, Words(), {"letters": 5})
    assert batch.inputs["letters"].shape == (2, 3, 4)
    assert batch.inputs["letters"][0, 1:].unique().tolist() == [5]


def test_a_batch_moves_everything_the_device_needs() -> None:
    batch = collate([row([1, 2], [0])], Words(), {})
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    tensors = [*moved.inputs.values(), *moved.targets["words"].values(), moved.sample_index]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (moved.target_counts, moved.sample_ids, moved.num_tokens) == (
        batch.target_counts,
        batch.sample_ids,
        batch.num_tokens,
    )


def test_a_row_needs_the_prediction_axis() -> None:
    with pytest.raises(KeyError, match="tokens"):
        collate([Row(inputs={"other": np.arange(2)})], Words(), {})
