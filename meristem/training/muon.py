"""Muon: momentum whose update is made orthogonal (Jordan et al. 2024), in float32 so that CPUs keep pace."""

# A matrices of one shape, R rows, C columns

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from meristem.learning.spread import placed, whole
from meristem.learning.team import ALONE, Team

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5


def orthogonal(m_ARC: Tensor) -> Tensor:
    """Five Newton–Schulz rounds bring every singular value near 1."""
    tall = m_ARC.shape[-2] > m_ARC.shape[-1]
    x = m_ARC.mT if tall else m_ARC
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """For matrices only; the update has the size AdamW's would have, so that one rate serves both.

    Every process of a team makes its share of the matrices orthogonal, and they tell each other.
    """

    state_entries: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        rate: float,
        *,
        momentum: float,
        weight_decay: float,
        team: Team = ALONE,
    ) -> None:
        super().__init__(params, {"lr": rate, "momentum": momentum, "weight_decay": weight_decay})
        self.team = team

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure is used
        """Matrices of one shape are orthogonalised together."""
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[tuple(parameter.shape)].append(parameter)
            for same in shapes.values():
                self._together(same, group)

    def _together(self, same: list[nn.Parameter], group: dict[str, Any]) -> None:
        rows, columns = same[0].shape
        updates = []
        for parameter in same:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
            nesterov = torch.lerp(parameter.grad, state["momentum"], group["momentum"])  # type: ignore[arg-type]
            updates.append(whole(nesterov))  # matrices that lie in parts over processes are made orthogonal whole
        stacked = torch.stack(updates)
        parts = (
            rows // columns if rows % columns == 0 else 1
        )  # queries, keys and values side by side are three matrices
        update = self._shared(stacked.view(len(same) * parts, rows // parts, columns)).reshape_as(stacked)
        scale = 0.2 * max(rows // parts, columns) ** 0.5  # AdamW's usual root mean square (Liu et al. 2025)
        for parameter, change in zip(same, update, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(placed(change, parameter), alpha=-group["lr"] * scale)

    def _shared(self, m_ARC: Tensor) -> Tensor:
        mine = self.team.share(len(m_ARC))
        return self.team.gathered(orthogonal(m_ARC[mine.start : mine.stop]), self.team.shares(len(m_ARC)))
