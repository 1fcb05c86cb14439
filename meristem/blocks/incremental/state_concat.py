"""Concatenation of incremental decoding states along the batch, for continuous batching."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.interfaces.backbone import State

PRESENT = "present"


def concat_states(first: State, second: State, pad_dims: Mapping[str, int] | None = None) -> State:
    """The rows of two states; every tensor has the batch as its first dimension.

    `pad_dims` maps a key to the dimension in which the two may differ in length; the shorter one is padded, and
    `present` [B, S] is then the padding mask.
    """
    pad_dims = pad_dims or {}
    states = [first, second]
    if pad_dims:
        source_lengths = [_source_length(state, pad_dims) for state in states]
        if source_lengths[0] != source_lengths[1] or any(PRESENT in state for state in states):
            states = [
                {
                    PRESENT: next(iter(state.values())).new_ones(len(state["next"]), source_length, dtype=torch.bool),
                    **state,
                }
                for state, source_length in zip(states, source_lengths, strict=True)
            ]
    return {key: torch.cat(_pad_to_longest([state[key] for state in states], pad_dims.get(key))) for key in states[0]}


def _source_length(state: State, pad_dims: Mapping[str, int]) -> int:
    """Length of the source."""
    return next(state[key].shape[dim] for key, dim in pad_dims.items() if key in state)


def _pad_to_longest(tensors: list[Tensor], dim: int | None) -> list[Tensor]:
    """The tensors padded with zeros to the longest in a dimension."""
    if dim is None:
        return tensors
    longest = max(tensor.shape[dim] for tensor in tensors)
    return [F.pad(tensor, [0, 0] * (tensor.ndim - dim - 1) + [0, longest - tensor.shape[dim]]) for tensor in tensors]


def concat_inputs(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Encoder inputs of both batches; if lengths differ, `source` is padded and gets `source_present`."""
    out: dict[str, Tensor] = {}
    for key in (key for key in first if not key.endswith(f"_{PRESENT}")):
        values = [first[key], second[key]]
        present_masks = [first.get(f"{key}_{PRESENT}"), second.get(f"{key}_{PRESENT}")]
        if values[0].shape[1] != values[1].shape[1] or any(mask is not None for mask in present_masks):
            masks = [
                mask if mask is not None else tensor.new_ones(tensor.shape[:2], dtype=torch.bool)
                for mask, tensor in zip(present_masks, values, strict=True)
            ]
            out[f"{key}_{PRESENT}"] = torch.cat(_pad_to_longest(masks, 1))
        out[key] = torch.cat(_pad_to_longest(values, 1))
    return out
