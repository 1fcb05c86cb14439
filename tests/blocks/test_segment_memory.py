from __future__ import annotations

import pytest
import torch

from meristem.blocks.transformer.segment_memory import EMPTY_SLOT, SegmentMemory


def states(rows: int, time: int, layers: int = 2) -> list[torch.Tensor]:
    return [torch.randn(rows, time, 3, requires_grad=True) for _ in range(layers)]


@pytest.mark.parametrize("segments", [(5, 5, 5), (2, 1, 9), (9, 2, 2), (1, 1, 1)])
def test_memory_holds_the_last_states(segments: tuple[int, ...]) -> None:
    memory, segment_states = SegmentMemory.empty(torch.zeros(2, 1, 3), 2, 4), []
    for time in segments:
        segment_states.append(states(2, time))
        state = memory.next_state(segment_states[-1], None, None, 4)
        segment_memory = SegmentMemory.from_state(state, None)
        assert segment_memory is not None
        memory = segment_memory
    for layer in range(2):
        expected = torch.cat([segment[layer] for segment in segment_states], 1)[:, -4:]
        assert torch.equal(memory.states[:, layer, -expected.shape[1] :], expected)
        assert (memory.documents >= 0).sum(1).tolist() == [expected.shape[1]] * 2
    assert memory.states.shape == (2, 2, 4, 3)
    assert not memory.states.requires_grad


def test_memory_of_short_rows_ends_at_their_last_token() -> None:
    before = SegmentMemory(states=torch.randn(3, 1, 4, 3), documents=torch.zeros(3, 4, dtype=torch.long))
    (hidden,) = states(3, 6, 1)
    present = torch.arange(6) < torch.tensor([[6], [2], [0]])
    state = before.next_state([hidden], present, torch.full((3, 6), 7), 4)
    assert torch.equal(state["memory"][0, 0], hidden[0, 2:])
    assert torch.equal(state["memory"][1, 0], torch.cat([before.states[1, 0, 2:], hidden[1, :2]]))
    assert torch.equal(state["memory"][2, 0], before.states[2, 0])
    assert state["documents"].tolist() == [[7] * 4, [0, 0, 7, 7], [0] * 4]


def test_fresh_rows_clear_their_memory() -> None:
    state = {"memory": torch.ones(2, 1, 4, 3), "documents": torch.zeros(2, 4, dtype=torch.long)}
    segment_memory = SegmentMemory.from_state(state, torch.tensor([[True], [False]]))
    assert segment_memory is not None
    assert segment_memory.documents.tolist() == [[EMPTY_SLOT] * 4, [0] * 4]
    assert segment_memory.states[0].abs().max() == 0
    assert segment_memory.states[1].min() == 1
    assert SegmentMemory.from_state(None, torch.tensor([[False]])) is None
    assert SegmentMemory.from_state({}, None) is None
