"""The same small cases the contract is tested on, and a place where whole runs are trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "learning"))

import pytest
import torch
from place import place

from meristem.training import budget

__all__ = ["one_thread", "place"]


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A forked child has no other threads, and the speed of the machine is nobody's question here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    yield
    torch.set_num_threads(before)
