"""Fixtures: small cases shared with the tests of `learning`, and a folder in which tiny runs are trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "learning"))

import pytest
import torch
from run_factory import run_factory

from meristem.training import budget

__all__ = ["one_thread", "run_factory"]


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, since a forked child has no others; the machine's peak is measured on a small product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    yield
    torch.set_num_threads(before)
