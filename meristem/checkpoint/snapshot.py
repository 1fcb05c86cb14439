"""Everything a run needs to go on as if it had never stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run between two steps."""

    step: int
    model: dict[str, Tensor]
    """A `state_dict`; tied tensors are the same storage under several names, and stay so."""
    optimizer: dict[str, Tensor]
    """Flat names, as `optimizer_state.flatten` gives them."""
    memory: dict[str, Tensor]
    """First dimension: global lane, so that it follows a change of processes. May be empty."""
    state: dict[str, Any]
    """What JSON can hold: samples, tokens, FLOPs, loss window, adaptive values."""
    recipe: str
    """The resolved recipe, as YAML text."""
    tokenizer: Path | None
    """A `tokenizer.json` to copy; of a loaded snapshot, the one in its folder."""
