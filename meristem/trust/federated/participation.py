"""Participation: which clients are asked in a round, and which simulated ones drop out, by (seed, round)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from meristem.utils.randomness import generator, stream_key


def choose_clients(names: Sequence[str], *, seed: int, round_number: int, fraction: float, at_least: int) -> list[str]:
    """The clients that are asked in a round, sorted: a share of those there are, but not fewer than are needed."""
    count = min(len(names), max(at_least, math.ceil(fraction * len(names))))
    order = generator(seed, "federated clients", round_number, 0).permutation(len(names))
    return sorted(np.asarray(sorted(names))[order[:count]].tolist())


def drops_out(name: str, *, seed: int, round_number: int, probability: float) -> bool:
    """Whether a simulated client is away in a round; it may be back in the next one."""
    draw = generator(stream_key(seed, "federated dropout", name), "dropout", round_number, 0)
    return bool(draw.random() < probability)


def client_seed(seed: int, name: str) -> int:
    """The seed of a client's order of samples, masking and dropout: no two clients share it."""
    return stream_key(seed, "federated client", name) & 0x7FFF_FFFF
