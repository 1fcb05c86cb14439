"""Shared helpers of the interop tests: random weights, loading with transformers, equality."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from meristem.checkpoint.load_run import load_run

Silence = Callable[[], AbstractContextManager[None]]


def scatter(module: nn.Module, seed: int = 0) -> None:
    """Random weights everywhere, norms and biases too, so that no name can be mistaken for another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            middle = 0.5 if parameter.ndim == 1 else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + middle)


def opened(folder: Path, name: str, no_warnings: Silence) -> Any:
    """Their own loading of what we wrote: every tensor found, none left, nothing to remark."""
    with no_warnings():
        config = transformers.AutoConfig.from_pretrained(folder)
        model, loading_info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert config.architectures == [name]
    assert not any(loading_info.values()), loading_info
    return copy.deepcopy(model).eval()  # weights mapped from a file lie at odd places, where sums round otherwise


def close(actual: Tensor, expected: Tensor) -> None:
    """Equal within 1e-5 of the largest value there is, or of 1."""
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) <= 1e-5 * max(1.0, float(expected.abs().max()))


def same_tensors(first_run: Path, other: Path) -> None:
    """Every tensor of two runs, bit for bit."""
    first_state, second_state = (load_run(run).learner.model.state_dict() for run in (first_run, other))
    assert first_state.keys() == second_state.keys()
    assert [name for name in first_state if not torch.equal(first_state[name], second_state[name])] == []


def run_card(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every Python block of an exported folder's README.md in that folder; what they print comes back."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert programs
    monkeypatch.chdir(folder)
    stream = io.StringIO()
    with redirect_stdout(stream):
        for program in programs:
            exec(compile(program, "README.md", "exec"), {})
    return stream.getvalue()
