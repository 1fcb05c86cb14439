"""AdamW with cautious weight decay (Chen et al. 2025): only weights that the update moves towards zero decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch


class CautiousAdamW(torch.optim.AdamW):
    """Torch's AdamW; the decay is applied after its update, where both have the same direction."""

    state_entries: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq", "step")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure is used
        """Update all parameters."""
        decays = [group["weight_decay"] for group in self.param_groups]
        before = [
            [parameter.clone() if decay and parameter.grad is not None else None for parameter in group["params"]]
            for group, decay in zip(self.param_groups, decays, strict=True)
        ]
        for group in self.param_groups:
            group["weight_decay"] = 0.0
        super().step()
        for group, decay, old_values in zip(self.param_groups, decays, before, strict=True):
            group["weight_decay"] = decay
            for parameter, old in zip(group["params"], old_values, strict=True):
                if old is not None:
                    shrinks = (old - parameter) * old > 0
                    parameter.sub_(old * shrinks, alpha=group["lr"] * decay)
