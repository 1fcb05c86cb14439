"""Counter-based random numbers: generators and shuffles as pure functions of (seed, purpose, epoch, sample).

There is no global state, so nothing has to be saved in a checkpoint.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

MAX_STORED_SIZE = 65_536  # below this a Feistel network is visibly uneven, and a stored permutation is cheap
FEISTEL_ROUNDS = 6

Ints = NDArray[np.int64]


@lru_cache(maxsize=4096)
def stream_key(*parts: int | str) -> int:
    """A 128-bit key (BLAKE2b) of the parts; equal on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, epoch: int, sample: int, group: int = 0) -> Generator:
    """The generator of one sample for one purpose in one epoch; samples of different groups share no numbers."""
    return Generator(Philox(key=stream_key(seed, purpose, epoch), counter=[0, 0, sample, group]))


class SampleRng:
    """The random number generators of one sample: `draw("mlm")` is its generator for that purpose."""

    def __init__(self, seed: int, epoch: int, sample: int) -> None:
        self.seed, self.epoch, self.sample = seed, epoch, sample

    def __call__(self, purpose: str) -> Generator:
        return generator(self.seed, purpose, self.epoch, self.sample)

    def repeating(self, num_epochs: int) -> SampleRng:
        """The same sample with the random numbers of the first epochs again and again."""
        return SampleRng(self.seed, self.epoch % num_epochs, self.sample)


def torch_seed(seed: int, step: int, micro_step: int, rank: int = 0) -> int:
    """The torch seed of one forward pass (dropout)."""
    return stream_key(seed, "torch", step, micro_step, rank) & 0x7FFF_FFFF_FFFF_FFFF


class KeyedPermutation:
    """A pseudorandom permutation of range(size), computed per element in O(1) without memory."""

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        if size < 1:
            raise ValueError("a permutation needs at least one sample")
        self.size = size
        self._permutation = _stored_permutation(size, seed, epoch) if size < MAX_STORED_SIZE else None
        if self._permutation is None:
            self._left_size = int(np.ceil(np.sqrt(size)))
            self._right_size = -(-size // self._left_size)
            round_keys = Philox(key=stream_key(seed, "order", epoch)).random_raw(2 * FEISTEL_ROUNDS)
            self._keys = round_keys.reshape(FEISTEL_ROUNDS, 2)

    def __call__(self, position: Ints | int) -> Ints:
        """The samples at these positions."""
        positions = np.atleast_1d(np.asarray(position, dtype=np.int64))
        if positions.size and (positions.min() < 0 or positions.max() >= self.size):
            raise IndexError(f"positions must be from 0 to {self.size - 1}")
        if self._permutation is not None:
            return self._permutation[positions]
        samples = self._feistel(positions)
        while (outside := samples >= self.size).any():  # cycle walking: repeat until the value is in range
            samples[outside] = self._feistel(samples[outside])
        return samples

    def _feistel(self, value: Ints) -> Ints:
        """A generalised Feistel network on left × right: each round shifts one half by a hash of the other."""
        left, right = value // self._right_size, value % self._right_size
        for round_index, (k0, k1) in enumerate(self._keys):
            if round_index % 2 == 0:
                left = (left + _hash64(right, k0, k1) % np.uint64(self._left_size)).astype(np.int64) % self._left_size
            else:
                right = (right + _hash64(left, k0, k1) % np.uint64(self._right_size)).astype(
                    np.int64
                ) % self._right_size
        return left * self._right_size + right


@lru_cache(maxsize=8)
def _stored_permutation(size: int, seed: int, epoch: int) -> Ints:
    return Generator(Philox(key=stream_key(seed, "order", epoch))).permutation(size).astype(np.int64)


def _hash64(value: Ints, k0: np.uint64, k1: np.uint64) -> NDArray[np.uint64]:
    """A 64-bit finaliser (shift, multiply, twice): every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        x = value.astype(np.uint64) ^ k0
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27)) ^ k1) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
