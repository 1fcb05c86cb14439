"""User-level differential privacy: noise on clipped updates, and the ε that the rounds of a run spend.

Neighbouring runs differ in one owner's updates (all of them, in every round, replaced by zeros). An update has norm at
most `clip`, the sum of a round gets Gaussian noise of standard deviation z·clip, and who takes part is not secret: no
amplification by sampling is claimed. T rounds of this are one Gaussian mechanism with μ = √T / z, whose ε follows
exactly from δ (Balle and Wang 2018; Dong et al. 2022), so no bound and no grid of orders is needed.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from meristem.checkpoint import disk
from meristem.config.errors import RecipeError
from meristem.trust.federated.aggregation import Update
from meristem.trust.federated.settings import FederatedPrivacySettings, FederatedSettings
from meristem.utils import untrusted_files

KEY_BYTES = 32
BISECTION_STEPS = 200


def spent_epsilon(rounds: int, privacy: FederatedPrivacySettings) -> float:
    """ε at `privacy.delta` after a client has taken part in so many rounds."""
    return 0.0 if rounds == 0 else gaussian_epsilon(math.sqrt(rounds) / privacy.noise_multiplier, privacy.delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε of μ-Gaussian differential privacy at δ: the root of δ(ε) = Φ(μ/2 − ε/μ) − exp(ε)·Φ(−μ/2 − ε/μ)."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of μ-Gaussian differential privacy at ε."""
    second = _log_normal_cdf(-mu / 2 - epsilon / mu)
    return math.exp(_log_normal_cdf(mu / 2 - epsilon / mu)) - math.exp(min(0.0, epsilon + second))


def _log_normal_cdf(x: float) -> float:
    """Logarithm of Φ(x); below −20 by its asymptotic series, where erfc underflows later on."""
    if x > -20:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log1p(-1 / (x * x) + 3 / x**4)


def check_budget(settings: FederatedSettings) -> float | None:
    """The ε that all rounds together spend; raises if it is more than the budget, None without privacy."""
    if (privacy := settings.privacy) is None:
        return None
    planned = spent_epsilon(settings.rounds, privacy)
    if privacy.epsilon is not None and planned > privacy.epsilon:
        needed = _noise_for(settings.rounds, privacy)
        raise RecipeError(
            f"federated.privacy.epsilon: {settings.rounds} rounds with noise_multiplier={privacy.noise_multiplier:g} "
            f"spend ε = {planned:.3g} (δ = {privacy.delta:g}), more than {privacy.epsilon:g}; set "
            f"federated.privacy.noise_multiplier={needed:.3g}, or fewer federated.rounds"
        )
    return planned


def _noise_for(rounds: int, privacy: FederatedPrivacySettings) -> float:
    """The smallest noise multiplier, to three digits and rounded up, that keeps the budget."""
    assert privacy.epsilon is not None
    low, high = 0.0, privacy.noise_multiplier
    while gaussian_epsilon(math.sqrt(rounds) / high, privacy.delta) > privacy.epsilon:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        too_little = gaussian_epsilon(math.sqrt(rounds) / middle, privacy.delta) > privacy.epsilon
        low, high = (middle, high) if too_little else (low, middle)
    digits = 2 - math.floor(math.log10(high))
    scale: float = 10.0**digits
    return math.ceil(high * scale) / scale


def stricter(first: FederatedPrivacySettings | None, own: FederatedPrivacySettings | None) -> float | None:
    """The norm that an update is clipped to: the smaller of the federation's and the owner's."""
    norms = [privacy.clip for privacy in (first, own) if privacy is not None]
    return min(norms, default=None)


def load_noise_key(path: Path) -> bytes:
    """The secret that noise is drawn from, created on first use and readable by its owner only.

    The seed of a recipe is public, and noise that others can draw again protects nobody; yet a resumed round must get
    the noise it had, or two answers of one client would differ by noise alone.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.atomic_write(path, [secrets.token_bytes(KEY_BYTES)])
        path.chmod(0o600)
    key = untrusted_files.read_bytes(path, KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise RecipeError(f"{path}: {len(key)} bytes are no key of {KEY_BYTES}; delete the file to draw a new one")
    return key


def gaussian_noise(update: Mapping[str, Tensor], std: float, *, key: bytes, round_number: int) -> Update:
    """Noise of the shapes of an update, float64: a function of the key, the round and the update itself.

    So a repeated round gets the noise it had, and two updates never get the same noise, whose difference would show
    theirs.
    """
    content = hashlib.blake2b(str(round_number).encode(), key=key)
    for name, tensor in update.items():
        content.update(name.encode())
        content.update(tensor.contiguous().numpy().tobytes())
    noise: Update = {}
    for name, tensor in update.items():
        digest = hashlib.blake2b(content.digest() + name.encode(), key=key, digest_size=16).digest()
        draw = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
        noise[name] = torch.from_numpy(np.asarray(std * draw.standard_normal(tuple(tensor.shape))))
    return noise


def add_noise(update: Mapping[str, Tensor], std: float, *, key: bytes, round_number: int) -> Update:
    """An update with Gaussian noise, in its own dtype."""
    noise = gaussian_noise(update, std, key=key, round_number=round_number)
    return {name: (tensor.to(torch.float64) + noise[name]).to(tensor.dtype) for name, tensor in update.items()}
