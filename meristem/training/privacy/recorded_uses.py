"""Recorded uses of parameters: what ghost clipping keeps of each matrix product, embedding and norm in a pass."""

# U units, L positions of a unit, O rows and I columns of a weight, N positions of a micro-batch

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

MAX_MATERIALIZED = 1 << 25
"""Elements of per-unit weight gradients that are computed as they are, where that is cheaper than inner products."""


@dataclass(kw_only=True)
class Use:
    """One use of a weight: its gradient of a unit is Σ leftᵀ right over the positions of the unit."""

    units: Tensor
    """[N] the unit of each position."""
    gradients: dict[int, Tensor] = field(default_factory=dict)
    """Loss term → gradient of the output [N, ·], set by the backward pass."""

    def record(self, term: int, gradient: Tensor) -> None:
        """Keep the gradient of the output, one row per position."""
        self.gradients[term] = gradient.reshape(len(self.units), -1)

    def output_gradient(self, scales_KU: Tensor) -> Tensor | None:
        """The gradient [N, ·] of the scaled terms together; None if the output had none."""
        total: Tensor | None = None
        for term, gradient in self.gradients.items():
            scaled = gradient * scales_KU[term][self.units][:, None].to(gradient.dtype)
            total = scaled if total is None else total + scaled
        return total


@dataclass(kw_only=True)
class MatrixUse(Use):
    """A product with a weight, a lookup in an embedding table, or both of a tied one."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    inputs: Tensor
    """[N, I] of a product, token ids [N] of a lookup."""

    @property
    def is_lookup(self) -> bool:
        """Whether the inputs are token ids."""
        return not self.inputs.is_floating_point()


@dataclass(kw_only=True)
class AffineUse(Use):
    """A product and a sum per channel, after a norm."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    inputs: Tensor
    """[N, D] normalized states."""


@dataclass(frozen=True)
class Factors:
    """A use with its gradient: `left` are output gradients or token ids, `right` inputs or output gradients."""

    left: Tensor
    right: Tensor
    units: Tensor

    def by_unit(self, num_units: int) -> Factors:
        """[U, L, ·] with zeros behind the positions of a unit."""
        counts = torch.bincount(self.units, minlength=num_units)
        if bool((counts == counts[0]).all()) and bool((self.units[1:] >= self.units[:-1]).all()):
            left, right = (x.reshape(num_units, -1, *x.shape[1:]) for x in (self.left, self.right))
            return Factors(left, right, self.units)
        order = torch.argsort(self.units, stable=True)
        sorted_units = self.units[order]
        first = torch.cumsum(counts, 0) - counts
        place = torch.arange(len(order), device=order.device) - first[sorted_units]
        padded = []
        for x in (self.left, self.right):
            out = x.new_zeros(num_units, int(counts.max()), *x.shape[1:])
            out[sorted_units, place] = x[order]
            padded.append(out)
        return Factors(padded[0], padded[1], self.units)


def squared_norms(uses: list[Factors], num_units: int) -> Tensor:
    """[U] squared norm of each unit's gradient of one weight, summed over its uses: Σ (left·left')(right·right')."""
    split = [use.by_unit(num_units) for use in uses]
    if len(split) == 1 and _is_materialized(split[0]):
        return torch.bmm(split[0].left.mT, split[0].right).square().sum((1, 2))
    total = uses[0].right.new_zeros(num_units)
    for number, first in enumerate(split):
        for second in split[: number + 1]:
            products = _left_products(first.left, second.left, first.right.dtype)
            products = products * torch.bmm(first.right, second.right.mT)
            total += products.sum((1, 2)) * (1 if first is second else 2)
    return total.clamp(min=0)


def _is_materialized(use: Factors) -> bool:
    """Whether gradients of the weight itself take less work than inner products of all pairs of positions."""
    if not use.left.is_floating_point():
        return False
    num_units, length, rows = use.left.shape
    columns = use.right.shape[2]
    return length * (rows + columns) > rows * columns and num_units * rows * columns <= MAX_MATERIALIZED


def _left_products(first: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
    """[U, L, L'] inner products; token ids stand for one-hot vectors."""
    if first.is_floating_point() and second.is_floating_point():
        return torch.bmm(first, second.mT)
    if not first.is_floating_point() and not second.is_floating_point():
        return (first[:, :, None] == second[:, None, :]).to(dtype)
    if second.is_floating_point():
        return _left_products(second, first, dtype).mT
    return first.gather(2, second[:, None, :].expand(-1, first.shape[1], -1))


def add_weight_gradient(total: Tensor, use: Factors, factors_U: Tensor) -> None:
    """Add Σ factor · leftᵀ right over all positions to the gradient of a weight."""
    right = use.right * factors_U[use.units][:, None].to(use.right.dtype)
    if use.left.is_floating_point():
        total.addmm_(use.left.mT, right)
    else:
        total.index_add_(0, use.left, right)


def unit_sums(values: Tensor, units: Tensor, num_units: int) -> Tensor:
    """[N, D] → [U, D] summed over the positions of each unit."""
    return values.new_zeros(num_units, values.shape[1]).index_add_(0, units, values)
