"""Which source feeds a step: blocks with exact quotas and a keyed order inside, so that nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from meristem.randomness import key

BLOCK = 100


class Mix:
    """`mix(step)` → (name, how-manieth use of that source): the same on every machine, at any step, in O(1)."""

    def __init__(self, weights: Mapping[str, float], seed: int) -> None:
        self.names = tuple(weights)
        self.seed = seed
        self.quotas = _quotas(np.array([weights[name] for name in self.names]))
        self.block = int(self.quotas.sum())

    @property
    def shares(self) -> dict[str, float]:
        """Each source's share of the steps."""
        return {name: int(quota) / self.block for name, quota in zip(self.names, self.quotas, strict=True)}

    def __call__(self, step: int) -> tuple[str, int]:
        """The source of a step and its position in that source."""
        if len(self.names) == 1:
            return self.names[0], step
        number, place = divmod(step, self.block)
        order = _order(self.seed, number, tuple(self.quotas.tolist()))
        source = order[place]
        before = sum(1 for other in order[:place] if other == source)
        return self.names[source], number * int(self.quotas[source]) + before


def _quotas(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole steps per block: the smallest block that gives the weights exactly, else the nearest of BLOCK steps."""
    shares = weights / weights.sum()
    for block in range(len(weights), BLOCK + 1):
        whole: NDArray[np.int64] = np.round(shares * block).astype(np.int64)
        if np.allclose(shares * block, whole, atol=1e-9) and (whole >= 1).all():
            return whole
    quotas: NDArray[np.int64] = np.maximum(1, np.floor(shares * BLOCK)).astype(np.int64)
    while quotas.sum() < BLOCK:  # the largest remainders get what is left
        quotas[np.argmax(shares * BLOCK - quotas)] += 1
    return quotas


@lru_cache(maxsize=64)
def _order(seed: int, number: int, quotas: tuple[int, ...]) -> tuple[int, ...]:
    sources = np.repeat(np.arange(len(quotas)), quotas)
    return tuple(Generator(Philox(key=key(seed, "mix", number))).permutation(sources).tolist())
