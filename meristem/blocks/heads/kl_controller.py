"""Adaptive KL controller (Ziegler et al. 2019): KL coefficient, running reward statistics and collapse counters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MIN_COEFFICIENT_SCALE = 0.2
"""Lower bound of the KL coefficient, as a share of its initial value."""
REWARD_STATS_DECAY = 0.95
"""Decay per step of the running reward statistics."""


class AdaptiveKLController(nn.Module):
    """Controller state of a policy-gradient run in buffers, so that checkpoints hold it and resuming is exact."""

    price: Tensor
    """Factor on the initial KL coefficient."""
    known: Tensor
    """[weight, mean, mean square] of rewards, exponentially decayed."""
    wild: Tensor
    """Consecutive steps whose KL divergence from the reference model is far above the target."""
    dull: Tensor
    """Consecutive steps whose completions lack diversity."""
    variety: Tensor
    """[steps, mean] of the diversity of completions in the first steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("price", torch.ones((), dtype=torch.float64))
        self.register_buffer("known", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("wild", torch.zeros((), dtype=torch.int64))
        self.register_buffer("dull", torch.zeros((), dtype=torch.int64))
        self.register_buffer("variety", torch.zeros(2, dtype=torch.float64))

    @property
    def reward_mean_std(self) -> tuple[float, float]:
        """Running mean and standard deviation of rewards; (0, 1) before the first."""
        weight, mean, mean_square = self.known.tolist()
        return (mean, max(mean_square - mean * mean, 1e-8) ** 0.5) if weight else (0.0, 1.0)

    def update_reward_stats(self, mean: float, mean_square: float) -> None:
        """Update the running statistics with a step's mean and mean square of rewards."""
        weight, old_mean, old_mean_square = self.known.tolist()
        total = REWARD_STATS_DECAY * weight + 1
        share = 1 / total
        stats = [total, old_mean + share * (mean - old_mean), old_mean_square + share * (mean_square - old_mean_square)]
        self.known.copy_(torch.tensor(stats, dtype=torch.float64))

    def update_coefficient(self, kl: float, target: float, step_size: float) -> None:
        """Raise the KL coefficient where the KL divergence is above the target, lower it where it is below.

        As in Ziegler et al. 2019, but it rises faster than it falls, and has a lower bound so that it recovers quickly.
        """
        error = min(max(kl / target - 1, -0.2), 1.0)
        self.price.mul_(1 + step_size * error).clamp_(min=MIN_COEFFICIENT_SCALE)

    def diversity_ratio(self, diversity: float, num_first_steps: int) -> float:
        """Diversity relative to its mean over the first steps; 1 during those."""
        steps, mean = self.variety.tolist()
        if steps < num_first_steps:
            self.variety.copy_(torch.tensor([steps + 1, mean + (diversity - mean) / (steps + 1)], dtype=torch.float64))
            return 1.0
        return diversity / max(float(mean), 1e-9)
