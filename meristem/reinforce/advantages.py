"""Advantages for policy gradients: returns minus a baseline (RLOO, GRPO, a learned value, or none)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.reinforce.settings import Baseline

Floats = NDArray[np.float64]


def advantages(baseline: Baseline, returns: Floats, group_size: int, values: NDArray[Any] | None = None) -> Floats:
    """Returns of completions, `group_size` consecutive ones per prompt, minus their baseline.

    rloo: the mean return of the prompt's other completions (Ahmadian et al. 2024); grpo: the mean of the whole group,
    divided by its standard deviation (Shao et al. 2024); learned: the value head's prediction; none: zero.
    """
    groups = returns.reshape(-1, group_size)
    match baseline:
        case "rloo":
            other_mean = (groups.sum(1, keepdims=True) - groups) / (group_size - 1)
            return np.asarray(groups - other_mean).reshape(-1)
        case "grpo":
            std = groups.std(1, keepdims=True)
            return np.asarray((groups - groups.mean(1, keepdims=True)) / (std + 1e-6)).reshape(-1)
        case "learned":
            assert values is not None
            return np.asarray(returns - values)
        case "none":
            return returns
