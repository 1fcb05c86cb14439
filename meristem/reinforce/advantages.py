"""How much better a text was than expected: what its return is compared with."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Baseline = Literal["rloo", "grpo", "learned", "none"]


def advantages(kind: Baseline, returns: Floats, count: int, expected: NDArray[Any] | None = None) -> Floats:
    """Returns of texts, `count` for each prompt in a row, less their baseline.

    rloo: the mean of the prompt's other texts (Ahmadian et al. 2024); grpo: the mean of all of them, in units of their
    deviation (Shao et al. 2024); learned: what the model expected of the prompt; none: nothing.
    """
    groups = returns.reshape(-1, count)
    match kind:
        case "rloo":
            others = (groups.sum(1, keepdims=True) - groups) / (count - 1)
            return np.asarray(groups - others).reshape(-1)
        case "grpo":
            spread = groups.std(1, keepdims=True)
            return np.asarray((groups - groups.mean(1, keepdims=True)) / (spread + 1e-6)).reshape(-1)
        case "learned":
            assert expected is not None
            return np.asarray(returns - expected)
        case "none":
            return returns
