"""Arithmetic of secure aggregation: fixed-point updates modulo 2⁶⁴, masks that cancel in the sum, Shamir's shares.

Masks come from SHAKE-256. (Flower 1.41 has SecAgg+, whose masks come from MT19937 seeded with 32 bits: a server can try
all seeds, so that protocol is not used here.)
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from meristem.trust.federated.aggregation import Update

FRACTION_BITS = 32
"""Bits after the point: values are exact to 2⁻³³, and sums may reach 2³¹."""
PRIME = 2**521 - 1
"""Field of the shares; secrets have 256 bits."""
SHARE_BYTES = 66


def encode_fixed_point(update: Mapping[str, Tensor], weight: float) -> Update:
    """weight · update as integers modulo 2⁶⁴ (int64, which wraps around)."""
    return {
        name: (tensor.to(torch.float64) * (weight * 2.0**FRACTION_BITS)).round().to(torch.int64)
        for name, tensor in update.items()
    }


def decode_fixed_point(total: Mapping[str, Tensor], weight: float) -> Update:
    """The float64 values of a sum of encoded updates, divided by the sum of their weights."""
    return {name: tensor.to(torch.float64) / (2.0**FRACTION_BITS * weight) for name, tensor in total.items()}


def mask_like(update: Mapping[str, Tensor], seed: bytes) -> Update:
    """A mask of the shapes of an update: uniform integers modulo 2⁶⁴, a function of the seed."""
    mask: Update = {}
    for name, tensor in update.items():
        stream = hashlib.shake_256(seed + name.encode()).digest(8 * tensor.numel())
        values = np.frombuffer(stream, dtype="<i8").astype(np.int64).reshape(tuple(tensor.shape))
        mask[name] = torch.from_numpy(values)
    return mask


def add_masks(update: Mapping[str, Tensor], masks: Sequence[tuple[Mapping[str, Tensor], int]]) -> Update:
    """The update plus each mask times its sign, modulo 2⁶⁴."""
    total = {name: tensor.clone() for name, tensor in update.items()}
    for mask, sign in masks:
        for name, tensor in total.items():
            tensor.add_(mask[name], alpha=sign)
    return total


def pair_sign(own: str, other: str) -> int:
    """Sign of the mask that two clients share: of opposite signs at the two, so that it cancels in their sum."""
    return 1 if own < other else -1


def split_secret(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shamir's secret sharing: `count` shares, any `threshold` of which give the secret; fewer say nothing about it."""
    if not 1 <= threshold <= count or len(secret) > 32:
        raise ValueError("a secret of at most 32 bytes is split into at least as many shares as are needed")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = []
    for x in range(1, count + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def join_shares(shares: Mapping[int, bytes], num_bytes: int = 32) -> bytes:
    """The secret, from shares by their number (from 1); wrong if there are fewer than the threshold."""
    secret = 0
    for x, share in shares.items():
        factor = 1
        for other in shares:
            if other != x:
                factor = factor * other * pow(other - x, -1, PRIME) % PRIME
        secret = (secret + int.from_bytes(share, "big") * factor) % PRIME
    return (secret % (1 << (8 * num_bytes))).to_bytes(num_bytes, "big")
