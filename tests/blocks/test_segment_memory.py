from __future__ import annotations

import pytest
import torch

from meristem.blocks.transformer.segment_memory import EMPTY_SLOT, SegmentMemory


def states(rows: int, time: int, layers: int = 2) -> list[torch.Tensor]:
    return [torch.randn(rows, time, 3, requires_grad=True) for _ in range(layers)]


@pytest.mark.parametrize("segments", [(5, 5, 5), (2, 1, 9), (9, 2, 2), (1, 1, 1)])
def test_memory_holds_the_last_states(segments: tuple[int, ...]) -> None:
    memory, told = SegmentMemory.empty(torch.zeros(2, 1, 3), 2, 4), []
    for time in segments:
        told.append(states(2, time))
        state = memory.next_state(told[-1], None, None, 4)
        found = SegmentMemory.from_state(state, None)
        assert found is not None
        memory = found
    for layer in range(2):
        whole = torch.cat([one[layer] for one in told], 1)[:, -4:]
        assert torch.equal(memory.states[:, layer, -whole.shape[1] :], whole)
        assert (memory.documents >= 0).sum(1).tolist() == [whole.shape[1]] * 2
    assert memory.states.shape == (2, 2, 4, 3)
    assert not memory.states.requires_grad


def test_memory_of_short_rows_ends_at_their_last_token() -> None:
    before = SegmentMemory(states=torch.randn(3, 1, 4, 3), documents=torch.zeros(3, 4, dtype=torch.long))
    (read,) = states(3, 6, 1)
    present = torch.arange(6) < torch.tensor([[6], [2], [0]])
    state = before.next_state([read], present, torch.full((3, 6), 7), 4)
    assert torch.equal(state["memory"][0, 0], read[0, 2:])
    assert torch.equal(state["memory"][1, 0], torch.cat([before.states[1, 0, 2:], read[1, :2]]))
    assert torch.equal(state["memory"][2, 0], before.states[2, 0])
    assert state["documents"].tolist() == [[7] * 4, [0, 0, 7, 7], [0] * 4]


def test_fresh_rows_clear_their_memory() -> None:
    state = {"memory": torch.ones(2, 1, 4, 3), "documents": torch.zeros(2, 4, dtype=torch.long)}
    held = SegmentMemory.from_state(state, torch.tensor([[True], [False]]))
    assert held is not None
    assert held.documents.tolist() == [[EMPTY_SLOT] * 4, [0] * 4]
    assert held.states[0].abs().max() == 0
    assert held.states[1].min() == 1
    assert SegmentMemory.from_state(None, torch.tensor([[False]])) is None
    assert SegmentMemory.from_state({}, None) is None
