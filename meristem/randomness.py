"""Draws and order as pure functions of (seed, purpose, epoch, sample): no global state, nothing to save."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

SMALL = 65_536  # below this a Feistel network is visibly uneven, and a stored permutation is cheap
ROUNDS = 6

Ints = NDArray[np.int64]


@lru_cache(maxsize=4096)
def key(*parts: int | str) -> int:
    """A 128-bit key for what the parts name; equal parts give equal keys on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, epoch: int, sample: int) -> Generator:
    """The generator of one sample for one purpose in one epoch."""
    return Generator(Philox(key=key(seed, purpose, epoch), counter=[0, 0, sample, 0]))


class Draw:
    """What `prepare` receives: `draw("mlm")` is this sample's generator for that purpose."""

    def __init__(self, seed: int, epoch: int, sample: int) -> None:
        self.seed, self.epoch, self.sample = seed, epoch, sample

    def __call__(self, purpose: str) -> Generator:
        return generator(self.seed, purpose, self.epoch, self.sample)


def torch_seed(seed: int, step: int, micro: int, process: int = 0) -> int:
    """The seed of everything torch draws in one forward pass (dropout)."""
    return key(seed, "torch", step, micro, process) & 0x7FFF_FFFF_FFFF_FFFF


class Order:
    """A keyed permutation of range(size): which sample is number n, in O(1) and without memory."""

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        if size < 1:
            raise ValueError("an order needs at least one sample")
        self.size = size
        self._stored = _stored(size, seed, epoch) if size < SMALL else None
        if self._stored is None:
            self._left = int(np.ceil(np.sqrt(size)))
            self._right = -(-size // self._left)
            words = Philox(key=key(seed, "order", epoch)).random_raw(2 * ROUNDS)
            self._keys = words.reshape(ROUNDS, 2)

    def __call__(self, position: Ints | int) -> Ints:
        """The samples at these positions."""
        at = np.atleast_1d(np.asarray(position, dtype=np.int64))
        if at.size and (at.min() < 0 or at.max() >= self.size):
            raise IndexError(f"positions run from 0 to {self.size - 1}")
        if self._stored is not None:
            return self._stored[at]
        out = self._network(at)
        while (outside := out >= self.size).any():  # cycle walking: stay in the orbit until it is a sample
            out[outside] = self._network(out[outside])
        return out

    def _network(self, value: Ints) -> Ints:
        """A generalised Feistel network on left × right: each round shifts one half by a hash of the other."""
        a, b = value // self._right, value % self._right
        for number, (k0, k1) in enumerate(self._keys):
            if number % 2 == 0:
                a = (a + _mix(b, k0, k1) % np.uint64(self._left)).astype(np.int64) % self._left
            else:
                b = (b + _mix(a, k0, k1) % np.uint64(self._right)).astype(np.int64) % self._right
        return a * self._right + b


@lru_cache(maxsize=8)
def _stored(size: int, seed: int, epoch: int) -> Ints:
    return Generator(Philox(key=key(seed, "order", epoch))).permutation(size).astype(np.int64)


def _mix(value: Ints, k0: np.uint64, k1: np.uint64) -> NDArray[np.uint64]:
    """A 64-bit finaliser (shift, multiply, twice): every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        x = value.astype(np.uint64) ^ k0
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27)) ^ k1) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
