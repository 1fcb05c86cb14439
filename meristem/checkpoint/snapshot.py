"""Snapshot: everything a checkpoint holds to resume a run bit for bit (weights, optimizer, memory, state, recipe)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a run between two steps."""

    step: int
    model: dict[str, Tensor]
    """A `state_dict`; tied tensors are the same storage under several names, and stay so."""
    optimizer: dict[str, Tensor]
    """Flat names, as returned by `optimizer_state.flatten_state`."""
    memory: dict[str, Tensor]
    """Recurrent memory; first dimension: row of the global batch, whatever the number of processes. May be empty."""
    state: dict[str, Any]
    """JSON data of `TrainState`: samples, tokens, FLOPs, metric window, adaptive values."""
    recipe: str
    """The resolved recipe, as YAML text."""
    tokenizer: Path | None
    """A `tokenizer.json` to copy; of a loaded snapshot, the one in its folder."""
