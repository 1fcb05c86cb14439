"""Gaussian noise as a function of (seed, step, tensor), and the secret seed of a run."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from meristem.checkpoint.folder_layout import list_steps
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.distributed.process_group import DistributedContext
from meristem.training.privacy.settings import PrivacySettings
from meristem.utils.randomness import generator

SECRET_FILE = "privacy.key"
"""File in the run folder with the secret seed; erased when the run ends."""
SECRET_BITS = 128


def add_noise(total: Tensor, deviation: float, *, seed: int, step: int, tensor_number: int) -> None:
    """Add N(0, deviation²) to a tensor in place; the same numbers in every process."""
    dtype = np.float64 if total.dtype == torch.float64 else np.float32
    # Philox with a key of 128 bits: torch's CPU generator keeps 32 bits of its seed, which can be tried out
    rng = generator(seed, "gaussian noise", step, tensor_number)
    noise = torch.from_numpy(rng.standard_normal(total.numel(), dtype=dtype)).view_as(total)
    total.add_(noise.to(total.device, total.dtype), alpha=deviation)


def run_noise_seed(run: RunFolder, settings: PrivacySettings | None, distributed: DistributedContext) -> int | None:
    """The seed of sampling and noise: the one that is set, or the run's secret; None where there is none (any more)."""
    if settings is None or settings.noise_seed is not None:
        return None if settings is None else settings.noise_seed
    path = run.path / SECRET_FILE
    with distributed.run_rank_zero_first():
        return None if run.finish_record is not None and not path.exists() else _read_secret(run, path)


def _read_secret(run: RunFolder, path: Path) -> int:
    """The secret of a run, drawn before its first checkpoint."""
    if not path.exists() and not list_steps(run.checkpoints):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secrets.randbits(SECRET_BITS):032x}\n")
            file.flush()
            os.fsync(file.fileno())
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        raise MeristemError(
            f"{path}: the secret seed of this run's noise is missing or damaged, so it cannot resume: with other noise "
            "for the same steps the budget would not hold. Start over with --fresh"
        ) from None


def erase_secret(run: RunFolder) -> None:
    """Remove the secret of a run that has ended: nothing but its noise could be computed from it."""
    (run.path / SECRET_FILE).unlink(missing_ok=True)
