"""Rows that were begun at different times, side by side: states of writers put under each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.batch import State

PRESENT = "present"


def joined(one: State, other: State, along: Mapping[str, int] | None = None) -> State:
    """The rows of two states, each key row first.

    `along` names the dimension in which a key may be longer in one of the two; the shorter is padded, and `present`
    [rows, places] then says what exists.
    """
    along = along or {}
    states = [one, other]
    if along:
        sizes = [_places(state, along) for state in states]
        if sizes[0] != sizes[1] or any(PRESENT in state for state in states):
            states = [
                {PRESENT: next(iter(state.values())).new_ones(len(state["next"]), size, dtype=torch.bool), **state}
                for state, size in zip(states, sizes, strict=True)
            ]
    return {key: torch.cat(_level([state[key] for state in states], along.get(key))) for key in states[0]}


def _places(state: State, along: Mapping[str, int]) -> int:
    """How many places the source has."""
    return next(state[key].shape[dim] for key, dim in along.items() if key in state)


def _level(tensors: list[Tensor], dim: int | None) -> list[Tensor]:
    """Both as long in a dimension as the longer one."""
    if dim is None:
        return tensors
    most = max(tensor.shape[dim] for tensor in tensors)
    return [F.pad(tensor, [0, 0] * (tensor.ndim - dim - 1) + [0, most - tensor.shape[dim]]) for tensor in tensors]


def joined_inputs(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What an encoder reads, for the rows of both; a ragged `source` gets its `source_present`."""
    out: dict[str, Tensor] = {}
    for key in (key for key in one if not key.endswith(f"_{PRESENT}")):
        both = [one[key], other[key]]
        told = [one.get(f"{key}_{PRESENT}"), other.get(f"{key}_{PRESENT}")]
        if both[0].shape[1] != both[1].shape[1] or any(mask is not None for mask in told):
            masks = [
                mask if mask is not None else value.new_ones(value.shape[:2], dtype=torch.bool)
                for mask, value in zip(told, both, strict=True)
            ]
            out[f"{key}_{PRESENT}"] = torch.cat(_level(masks, 1))
        out[key] = torch.cat(_level(both, 1))
    return out
