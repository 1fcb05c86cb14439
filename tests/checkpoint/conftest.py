"""Fixtures: snapshots to save, and comparison of loaded ones with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot

Make = Callable[..., Snapshot]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"version": "1.0", "词": 1}', encoding="utf-8")
    return path


@pytest.fixture
def make(tokenizer: Path) -> Make:
    """A small snapshot of everything a checkpoint can hold, different for every step and salt."""

    def build(step: int, salt: int = 0) -> Snapshot:
        rng = torch.Generator().manual_seed(step * 1000 + salt)
        embedding = torch.randn(7, 4, generator=rng)
        return Snapshot(
            step=step,
            model={"embedding.weight": embedding, "head.weight": embedding, "norm.bias": torch.randn(4, generator=rng)},
            optimizer={
                "embedding.weight/exp_avg": torch.randn(7, 4, generator=rng),
                "embedding.weight/step": torch.tensor(float(step)),
            },
            memory={"lanes": torch.randn(2, 3, generator=rng)},
            state={"step": step, "loss": [0.1, 1e-300], "tokens": 10**15, "salt": salt},
            recipe="model: {family: bert}  # 模型\n",
            tokenizer=tokenizer,
        )

    return build


@pytest.fixture
def two_checkpoints(tmp_path: Path, make: Make) -> Path:
    """Checkpoints of step 10 and 20."""
    for step in (10, 20):
        save_checkpoint(tmp_path / "c", make(step))
    return tmp_path / "c"


@pytest.fixture
def equal_snapshots() -> Callable[[Snapshot, Snapshot], bool]:
    """Whether two snapshots agree bit for bit."""

    def compare(snapshot: Snapshot, other: Snapshot) -> bool:
        plain = (snapshot.step, snapshot.state, snapshot.recipe) == (other.step, other.state, other.recipe)
        tokenizers = [snapshot.tokenizer and snapshot.tokenizer.read_bytes() for snapshot in (snapshot, other)]
        return (
            plain
            and tokenizers[0] == tokenizers[1]
            and all(_equal(getattr(snapshot, part), getattr(other, part)) for part in ("model", "optimizer", "memory"))
        )

    return compare


def _equal(tensors: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == other.keys() and all(
        tensors[name].dtype == other[name].dtype
        and tensors[name].shape == other[name].shape
        and torch.equal(_bits(tensors[name]), _bits(other[name]))
        for name in tensors
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
