"""Mixing data sources by weight: blocks of steps with exact quotas, shuffled by a key, without stored state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from meristem.utils.randomness import stream_key

MAX_BLOCK = 100


class SourceMixture:
    """`mixture(step)` → (source, number of earlier steps from it): the same on every machine, for any step, in O(1)."""

    def __init__(self, weights: Mapping[str, float], seed: int) -> None:
        self.names = tuple(weights)
        self.seed = seed
        self.quotas = _quotas(np.array([weights[name] for name in self.names]))
        self.block_size = int(self.quotas.sum())

    @property
    def shares(self) -> dict[str, float]:
        """Each source's share of the steps."""
        return {name: int(quota) / self.block_size for name, quota in zip(self.names, self.quotas, strict=True)}

    def __call__(self, step: int) -> tuple[str, int]:
        """The source of a step, and how many earlier steps used that source."""
        if len(self.names) == 1:
            return self.names[0], step
        block_index, offset = divmod(step, self.block_size)
        order = _block_order(self.seed, block_index, tuple(self.quotas.tolist()))
        source = order[offset]
        previous_uses = sum(1 for other in order[:offset] if other == source)
        return self.names[source], block_index * int(self.quotas[source]) + previous_uses


def _quotas(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Steps per source and block: the smallest block with the exact weights, else the nearest with MAX_BLOCK steps."""
    shares = weights / weights.sum()
    for block in range(len(weights), MAX_BLOCK + 1):
        block_quotas: NDArray[np.int64] = np.round(shares * block).astype(np.int64)
        if np.allclose(shares * block, block_quotas, atol=1e-9) and (block_quotas >= 1).all():
            return block_quotas
    quotas: NDArray[np.int64] = np.maximum(1, np.floor(shares * MAX_BLOCK)).astype(np.int64)
    while quotas.sum() < MAX_BLOCK:  # the rest goes to the largest remainders
        quotas[np.argmax(shares * MAX_BLOCK - quotas)] += 1
    return quotas


@lru_cache(maxsize=64)
def _block_order(seed: int, block_index: int, quotas: tuple[int, ...]) -> tuple[int, ...]:
    sources = np.repeat(np.arange(len(quotas)), quotas)
    return tuple(Generator(Philox(key=stream_key(seed, "mix", block_index))).permutation(sources).tolist())
