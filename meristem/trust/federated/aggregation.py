"""Aggregation of updates on the server: weighted mean, FedAvg and FedAdam steps, clipping to a norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.trust.federated.settings import FederatedSettings

Update = dict[str, Tensor]
"""Name of a tensor → difference between a client's weights after its local steps and the global weights."""
MOMENTS = ("first_moment", "second_moment")


def weighted_mean(updates: Sequence[tuple[Mapping[str, Tensor], float]]) -> Update:
    """Mean of (update, weight) pairs in float64, summed in the order given; the result is float64.

    FedAvg (McMahan et al. 2017): w ← w + Σ n_k Δ_k / Σ n_k.
    """
    if not updates:
        raise ValueError("there is nothing to average")
    total = math.fsum(weight for _, weight in updates)
    mean = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in updates[0][0].items()}
    for update, weight in updates:
        for name, tensor in update.items():
            mean[name] += tensor.to(torch.float64) * (weight / total)
    return mean


def update_norm(update: Mapping[str, Tensor]) -> float:
    """L2 norm of a whole update, over all its tensors."""
    return math.sqrt(math.fsum(float(tensor.to(torch.float64).square().sum()) for tensor in update.values()))


def clip_update(update: Mapping[str, Tensor], max_norm: float) -> Update:
    """The update, scaled down so that its L2 norm is at most `max_norm`."""
    norm = update_norm(update)
    # float32 rounds up to 2⁻²⁴ of each value: the bound must hold for what is sent
    scale = 1.0 if norm <= max_norm else max_norm / norm * (1 - 1e-6)
    return {name: (tensor.to(torch.float64) * scale).to(tensor.dtype) for name, tensor in update.items()}


@dataclass(kw_only=True)
class ServerOptimizer:
    """Applies the mean update to the global weights: a plain step (FedAvg, FedProx), or Adam (FedAdam).

    FedAdam (Reddi et al. 2021): m ← β₁m + (1 − β₁)Δ, v ← β₂v + (1 − β₂)Δ², w ← w + η·m / (√v + τ).
    """

    settings: FederatedSettings
    moments: dict[str, Tensor] = field(default_factory=dict)
    """Name of a moment and tensor → float64 values; empty before the first step, and always without FedAdam."""

    def step(self, weights: Mapping[str, Tensor], mean_update: Mapping[str, Tensor]) -> Update:
        """The new global weights."""
        directions = self._adam(mean_update) if self.settings.strategy == "fedadam" else mean_update
        rate = self.settings.server_rate
        return {
            name: (tensor.to(torch.float64) + rate * directions[name]).to(tensor.dtype)
            for name, tensor in weights.items()
        }

    def _adam(self, mean_update: Mapping[str, Tensor]) -> Update:
        (beta1, beta2), directions = self.settings.server_betas, Update()
        for name, update in mean_update.items():
            first, second = (self.moments.get(f"{moment}.{name}", torch.zeros_like(update)) for moment in MOMENTS)
            first = beta1 * first + (1 - beta1) * update
            second = beta2 * second + (1 - beta2) * update.square()
            directions[name] = first / (second.sqrt() + self.settings.server_epsilon)
            self.moments |= {f"{MOMENTS[0]}.{name}": first, f"{MOMENTS[1]}.{name}": second}
        return directions
