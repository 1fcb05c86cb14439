"""What a policy run adapts as it goes: the price of leaving its start, the scale of its rewards, and its alarms."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CHEAPEST = 0.2
"""The lowest price, as a share of the first."""
DECAY = 0.95
"""How much of what is known of rewards a step keeps."""


class Leash(nn.Module):
    """Numbers, no parameters: buffers are saved with the model, so that a run goes on as if it never stopped."""

    price: Tensor
    """What the coefficient is multiplied with."""
    known: Tensor
    """[weight, mean, mean square] of rewards, newer steps counting more."""
    wild: Tensor
    """Steps in a row whose distance from the start ran away."""
    dull: Tensor
    """Steps in a row whose texts were too much alike."""
    variety: Tensor
    """[steps, mean] of how varied texts were in the first steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("price", torch.ones((), dtype=torch.float64))
        self.register_buffer("known", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("wild", torch.zeros((), dtype=torch.int64))
        self.register_buffer("dull", torch.zeros((), dtype=torch.int64))
        self.register_buffer("variety", torch.zeros(2, dtype=torch.float64))

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and deviation of rewards so far; 0 and 1 before the first."""
        weight, mean, square = self.known.tolist()
        return (mean, max(square - mean * mean, 1e-8) ** 0.5) if weight else (0.0, 1.0)

    def saw(self, mean: float, square: float) -> None:
        """Rewards of a step: their mean and mean square."""
        weight, before, before_square = self.known.tolist()
        total = DECAY * weight + 1
        share = 1 / total
        found = [total, before + share * (mean - before), before_square + share * (square - before_square)]
        self.known.copy_(torch.tensor(found, dtype=torch.float64))

    def pull(self, distance: float, target: float, speed: float) -> None:
        """A dearer way where the texts are farther than wanted, a cheaper one where they are nearer.

        As in Ziegler et al. 2019, but quicker back than forth, and never so cheap that it takes long to be felt again.
        """
        error = min(max(distance / target - 1, -0.2), 1.0)
        self.price.mul_(1 + speed * error).clamp_(min=CHEAPEST)

    def met(self, variety: float, first: int) -> float:
        """The share of the first steps' variety that is left."""
        steps, mean = self.variety.tolist()
        if steps < first:
            self.variety.copy_(torch.tensor([steps + 1, mean + (variety - mean) / (steps + 1)], dtype=torch.float64))
            return 1.0
        return variety / max(float(mean), 1e-9)
