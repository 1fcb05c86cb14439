"""Muon optimizer (Jordan et al. 2024): momentum with an orthogonalized update, in float32 to be fast on CPUs."""

# Shape suffixes: A matrices of one shape, R rows, C columns

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from meristem.distributed.parallel import full_tensor, shard_like
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
ROW_DECAY = 0.95
"""NorMuon: decay of the running mean square of a row (β₂ of the paper)."""
UPDATE_RMS = 0.2
"""Root mean square of an update before the learning rate, AdamW's usual one (Liu et al. 2025)."""


@dataclass(frozen=True, kw_only=True)
class MuonVariant:
    """How an update differs from plain Muon."""

    newton_schulz_steps: int = NEWTON_SCHULZ_STEPS
    normalizes_rows: bool = False
    """Divide each row of an update by its running root mean square (NorMuon, Li et al. 2025)."""
    cautious_weight_decay: bool = False
    """Decay only weights that the update moves towards zero (Chen et al. 2025)."""


def orthogonalize(m_ARC: Tensor, steps: int = NEWTON_SCHULZ_STEPS) -> Tensor:
    """Bring every singular value near 1 with Newton–Schulz iterations; returns the shape of `m_ARC`."""
    is_tall = m_ARC.shape[-2] > m_ARC.shape[-1]
    x = m_ARC.mT if is_tall else m_ARC
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


PLAIN_MUON = MuonVariant()


class Muon(torch.optim.Optimizer):
    """Muon for matrices; updates have the RMS that AdamW's would have, so that learning rates are comparable.

    The update of a fused matrix is orthogonalized in parts: `split_sizes` gives the rows of each.
    With several processes, each orthogonalizes its share of the matrices, and the results are all-gathered.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        *,
        momentum: float,
        weight_decay: float,
        split_sizes: Mapping[nn.Parameter, tuple[int, ...]] | None = None,
        variant: MuonVariant = PLAIN_MUON,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.variant = variant
        self.state_entries = ("momentum", "row_mean_sq") if variant.normalizes_rows else ("momentum",)
        self.split_sizes, self.distributed = dict(split_sizes or {}), distributed

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure is used
        """Update all parameters; matrices of equal shape and parts are orthogonalized in one batch."""
        for group in self.param_groups:
            similar_matrices: dict[tuple[int, tuple[int, ...]], list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    rows, columns = parameter.shape
                    similar_matrices[columns, self.split_sizes.get(parameter, (rows,))].append(parameter)
            for (_, sizes), matrices in similar_matrices.items():
                self._update_matrices(matrices, sizes, group)

    def _update_matrices(self, matrices: list[nn.Parameter], sizes: tuple[int, ...], group: dict[str, Any]) -> None:
        updates = []
        for parameter in matrices:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
            nesterov = torch.lerp(parameter.grad, state["momentum"], group["momentum"])  # type: ignore[arg-type]
            updates.append(full_tensor(nesterov))  # sharded matrices are gathered before orthogonalization
        update, scale = self._orthogonalize_parts(torch.stack(updates), sizes)
        for parameter, delta in zip(matrices, update, strict=True):
            if self.variant.normalizes_rows:
                delta = self._normalize_rows(parameter, delta) / scale
            own_delta = shard_like(delta, parameter)
            decay: float | Tensor = group["lr"] * group["weight_decay"]
            if self.variant.cautious_weight_decay:
                decay = decay * (own_delta * parameter > 0)
            parameter.mul_(1 - decay)
            parameter.add_(own_delta, alpha=-group["lr"] * scale)

    def _normalize_rows(self, parameter: nn.Parameter, delta_RC: Tensor) -> Tensor:
        """The update with rows of equal running size, and the root mean square of a plain one."""
        state, mean_square = self.state[parameter], delta_RC.square().mean(1, keepdim=True)
        if "row_mean_sq" not in state:
            state["row_mean_sq"] = torch.zeros_like(mean_square)
        state["row_mean_sq"].lerp_(mean_square, 1 - ROW_DECAY)
        normalized: Tensor = delta_RC / (state["row_mean_sq"].sqrt() + 1e-8)
        return normalized * (UPDATE_RMS / (normalized.square().mean().sqrt() + 1e-8))

    def _orthogonalize_parts(self, m_ARC: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, float]:
        """Updates in which each part is orthogonalized, and their scale; parts of equal size are one batch."""
        parts = list(torch.split(m_ARC, list(sizes), dim=1))
        first_scale = _update_scale(sizes[0], m_ARC.shape[-1])
        for size in dict.fromkeys(sizes):  # in the same order on every process
            indices = [index for index, part_size in enumerate(sizes) if part_size == size]
            orthogonal = self._orthogonalize_distributed(torch.cat([parts[index] for index in indices]))
            if (scale := _update_scale(size, m_ARC.shape[-1])) != first_scale:
                orthogonal *= scale / first_scale
            for index, part in zip(indices, orthogonal.chunk(len(indices)), strict=True):
                parts[index] = part
        return torch.cat(parts, dim=1), first_scale

    def _orthogonalize_distributed(self, m_ARC: Tensor) -> Tensor:
        local_range = self.distributed.shard_range(len(m_ARC))
        return self.distributed.all_gather(
            orthogonalize(m_ARC[local_range.start : local_range.stop], self.variant.newton_schulz_steps),
            self.distributed.shard_sizes(len(m_ARC)),
        )


def _update_scale(rows: int, columns: int) -> float:
    """Factor that gives an orthogonal matrix the root mean square of an update."""
    return UPDATE_RMS * float(max(rows, columns) ** 0.5)
