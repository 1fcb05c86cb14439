"""LSTM with projection and clipping, both directions in one batched loop (Sak et al. 2014; ELMo)."""

# G directions, T tokens, B batch, D input size, H cell size, P projected size,
# Z = 4 H gates: input, forget, output, new

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from meristem.blocks.precision import autocast_disabled


class LSTMClipping(NamedTuple):
    """Clipping thresholds of cells and states; None means no clipping."""

    cell: float | None
    state: float | None


class ProjectedLSTM(nn.Module):
    """One LSTM layer per direction; each direction gets its own rows, already reversed where necessary."""

    def __init__(
        self, num_directions: int, input_size: int, cell_size: int, hidden_size: int, clipping: LSTMClipping
    ) -> None:
        super().__init__()
        self.cell_size, self.hidden_size, self.clipping = cell_size, hidden_size, clipping
        self.read = nn.Parameter(torch.empty(num_directions, input_size, 4 * cell_size))
        self.recur = nn.Parameter(torch.empty(num_directions, hidden_size, 4 * cell_size))
        self.bias = nn.Parameter(torch.zeros(num_directions * 4 * cell_size))
        self.project = nn.Parameter(torch.empty(num_directions, cell_size, hidden_size))
        for weight, fan_sum in (
            (self.read, input_size + hidden_size + cell_size),
            (self.recur, input_size + hidden_size + cell_size),
            (self.project, cell_size + hidden_size),
        ):
            bound = (6 / fan_sum) ** 0.5
            nn.init.uniform_(weight, -bound, bound)
        with torch.no_grad():
            self.bias.view(num_directions, 4, cell_size)[:, 1] = 1.0  # forget gate bias 1

    def forward(
        self, x_GTBD: Tensor, state_GB: tuple[Tensor, Tensor] | None = None, continues_GTB1: Tensor | None = None,
        *, only: int | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """States [G, T, B, P] and, without gradient, cells [G, T, B, H].

        `state` is the initial (state, cell); where `continues` is false a step starts from a zero state.
        `only` is the index of the single direction that x and state hold, if not all.
        """
        directions, _, batch_size, _ = x_GTBD.shape
        x_GTBD = x_GTBD.to(self.read.dtype)
        if state_GB is None:
            state_GB = (
                x_GTBD.new_zeros(directions, batch_size, self.hidden_size),
                x_GTBD.new_zeros(directions, batch_size, self.cell_size),
            )
        continues = None if continues_GTB1 is None else continues_GTB1.to(x_GTBD.dtype)
        selected = slice(None) if only is None else slice(only, only + 1)
        bias = self.bias if only is None else self.bias.view(len(self.read), -1)[only]
        weights = (self.read[selected], self.recur[selected], bias, self.project[selected])
        return _LSTMFunction.apply(x_GTBD, *weights, *state_GB, continues, self.clipping)  # type: ignore[no-untyped-call, no-any-return]  # autograd is untyped


class _SavedTensors(NamedTuple):
    """Tensors saved for the backward pass; without `continues` no step resets its state."""

    x: Tensor
    read: Tensor
    recur: Tensor
    project: Tensor
    state: Tensor
    cell: Tensor
    continues: Tensor | None
    gates: Tensor
    """Gates after sigmoid, new values after tanh."""
    states: Tensor
    cells: Tensor
    tanh_cells: Tensor
    """tanh of the cells."""


class _LSTMFunction(torch.autograd.Function):
    """The loop over time with a hand-written backward pass.

    Only what depends on the previous step is computed step by step; all other products with weights are computed for
    all steps at once. Compared with autograd this saves a weight-sized sum per step.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        input_weight: Tensor,
        recur: Tensor,
        bias: Tensor,
        project: Tensor,
        state: Tensor,
        cell: Tensor,
        continues: Tensor | None,
        clipping: LSTMClipping,
    ) -> tuple[Tensor, Tensor]:
        with autocast_disabled(x.device):
            gates = torch.baddbmm(bias.view(len(input_weight), 1, -1), x.flatten(1, 2), input_weight).view(
                *x.shape[:3], -1
            )
            states = gates.new_empty(*gates.shape[:3], project.shape[-1])
            cells, tanh_cells = (gates.new_empty(*gates.shape[:3], cell.shape[-1]) for _ in range(2))
            saved = _SavedTensors(
                x, input_weight, recur, project, state, cell, continues, gates, states, cells, tanh_cells
            )
            _run_forward(saved, clipping)
        ctx.save_for_backward(*saved)
        ctx.clipping = clipping
        ctx.mark_non_differentiable(cells)
        return states, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = _SavedTensors(*ctx.saved_tensors)
        cell_size = saved.cells.shape[-1]
        with autocast_disabled(saved.x.device):
            d_gates, d_states = _run_backward(saved, grads[0].clone(), ctx.clipping)
            flat, x = d_gates.flatten(1, 2), saved.x.flatten(1, 2)
            previous_states = torch.cat([saved.state[:, None], saved.states[:, :-1]], 1)
            previous_states = previous_states if saved.continues is None else previous_states * saved.continues
            gated_output = saved.gates[..., 2 * cell_size : 3 * cell_size] * saved.tanh_cells
            d_x = (flat @ saved.read.mT).view_as(saved.x) if ctx.needs_input_grad[0] else None
            d_recur = previous_states.flatten(1, 2).mT @ flat
            d_project = gated_output.flatten(1, 2).mT @ d_states.flatten(1, 2)
        return d_x, x.mT @ flat, d_recur, flat.sum(1).flatten(), d_project, None, None, None, None


def _run_forward(saved: _SavedTensors, clipping: LSTMClipping) -> None:
    """Fill in gates, cells and states from the first step to the last."""
    state, cell, cell_size = saved.state, saved.cell, saved.cell.shape[-1]
    if saved.x.is_meta:  # for counting FLOPs: the products of all steps at once
        torch.baddbmm(saved.gates.flatten(1, 2), saved.states.flatten(1, 2), saved.recur)
        torch.bmm(saved.cells.flatten(1, 2), saved.project)
        return
    for t in range(saved.x.shape[1]):
        if saved.continues is not None:
            state, cell = state * saved.continues[:, t], cell * saved.continues[:, t]
        gates = saved.gates[:, t].baddbmm_(state, saved.recur)
        sigmoid_gates, new = gates[..., : 3 * cell_size].sigmoid_(), gates[..., 3 * cell_size :].tanh_()
        cell = torch.mul(sigmoid_gates[..., cell_size : 2 * cell_size], cell, out=saved.cells[:, t]).addcmul_(
            sigmoid_gates[..., :cell_size], new
        )
        if clipping.cell is not None:
            cell.clamp_(-clipping.cell, clipping.cell)
        tanh_cell = torch.tanh(cell, out=saved.tanh_cells[:, t])
        state = torch.bmm(sigmoid_gates[..., 2 * cell_size :] * tanh_cell, saved.project)
        if clipping.state is not None:
            state.clamp_(-clipping.state, clipping.state)
        saved.states[:, t] = state


def _run_backward(saved: _SavedTensors, d_states: Tensor, clipping: LSTMClipping) -> tuple[Tensor, Tensor]:
    """Backpropagation through time → gradients of gate pre-activations, and of states before clipping."""
    gates, cell_size, steps = saved.gates, saved.cell.shape[-1], saved.x.shape[1]
    d_gates = torch.empty_like(gates)
    recur, project = saved.recur.mT.contiguous(), saved.project.mT.contiguous()
    d_cell = torch.zeros_like(saved.cell)
    if saved.x.is_meta:
        torch.bmm(d_gates.flatten(1, 2), recur)
        torch.bmm(d_states.flatten(1, 2), project)
        return d_gates, d_states
    for t in range(steps - 1, -1, -1):
        d_state, tanh_cell, out = d_states[:, t], saved.tanh_cells[:, t], d_gates[:, t]
        i, f, o, g = gates[:, t].chunk(4, -1)
        if t + 1 < steps:
            d_state += _mask_restarts(torch.bmm(d_gates[:, t + 1], recur), saved.continues, t + 1)
        if clipping.state is not None:
            d_state.mul_(saved.states[:, t].abs() < clipping.state)
        d_output = torch.bmm(d_state, project)
        d_tanh_cell = d_output * o
        d_cell = (d_cell + d_tanh_cell).addcmul_(d_tanh_cell.mul_(tanh_cell), tanh_cell, value=-1)
        if clipping.cell is not None:
            d_cell.mul_(saved.cells[:, t].abs() < clipping.cell)
        previous_cell = _mask_restarts(saved.cells[:, t - 1] if t else saved.cell, saved.continues, t)
        d_i, d_f, d_o, d_g = out.chunk(4, -1)
        torch.mul(d_cell, g, out=d_i)
        torch.mul(d_cell, previous_cell, out=d_f)
        torch.mul(d_output, tanh_cell, out=d_o)
        torch.mul(d_cell, i, out=d_g)
        d_cell = _mask_restarts(d_cell * f, saved.continues, t)
        _activation_gradients(gates[:, t], out, cell_size)
    return d_gates, d_states


def _activation_gradients(gates_GBZ: Tensor, d_gates_GBZ: Tensor, cell_size: int) -> None:
    """Turn gradients of gates into those of their pre-activations, in place: σ' = σ − σ², tanh' = 1 − tanh²."""
    sigmoid_gates, d_sigmoid_gates = gates_GBZ[..., : 3 * cell_size], d_gates_GBZ[..., : 3 * cell_size]
    d_sigmoid_gates.mul_(torch.addcmul(sigmoid_gates, sigmoid_gates, sigmoid_gates, value=-1))
    new, d_new = gates_GBZ[..., 3 * cell_size :], d_gates_GBZ[..., 3 * cell_size :]
    d_new.addcmul_(d_new * new, new, value=-1)


def _mask_restarts(x_GBD: Tensor, continues_GTB1: Tensor | None, t: int) -> Tensor:
    """The tensor passed between step t − 1 and step t, zero where step t starts from a zero state."""
    return x_GBD if continues_GTB1 is None else x_GBD * continues_GTB1[:, t]
