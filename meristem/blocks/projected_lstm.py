"""LSTM layers whose states are projected and clipped, in both directions side by side (Sak et al. 2014; ELMo)."""

# G directions, T tokens, B batch, D input width, H cells, P width of a state, Z = 4 H gates: input, forget, output, new

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available


class Clips(NamedTuple):
    """How far values may go from zero; none means any distance."""

    cell: float | None
    state: float | None


class ProjectedLSTM(nn.Module):
    """One layer for each of G directions, each reading its own rows from their beginning."""

    def __init__(self, directions: int, inputs: int, cells: int, width: int, clips: Clips) -> None:
        super().__init__()
        self.cells, self.width, self.clips = cells, width, clips
        self.read = nn.Parameter(torch.empty(directions, inputs, 4 * cells))
        self.recur = nn.Parameter(torch.empty(directions, width, 4 * cells))
        self.bias = nn.Parameter(torch.zeros(directions * 4 * cells))
        self.project = nn.Parameter(torch.empty(directions, cells, width))
        for weight, sides in (
            (self.read, inputs + width + cells),
            (self.recur, inputs + width + cells),
            (self.project, cells + width),
        ):
            bound = (6 / sides) ** 0.5
            nn.init.uniform_(weight, -bound, bound)
        with torch.no_grad():
            self.bias.view(directions, 4, cells)[:, 1] = 1.0  # nothing is forgotten at first

    def forward(
        self, x_GTBD: Tensor, state_GB: tuple[Tensor, Tensor] | None = None, going_on_GTB1: Tensor | None = None,
        *, only: int | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """States [G, T, B, P] and, without gradient, cells [G, T, B, H].

        `state` is what earlier rows ended with; where `going_on` is false a step forgets all that came before it.
        `only` names the one direction that x and state are of.
        """
        directions, _, rows, _ = x_GTBD.shape
        x_GTBD = x_GTBD.to(self.read.dtype)
        if state_GB is None:
            state_GB = (
                x_GTBD.new_zeros(directions, rows, self.width),
                x_GTBD.new_zeros(directions, rows, self.cells),
            )
        going_on = None if going_on_GTB1 is None else going_on_GTB1.to(x_GTBD.dtype)
        chosen = slice(None) if only is None else slice(only, only + 1)
        bias = self.bias if only is None else self.bias.view(len(self.read), -1)[only]
        weights = (self.read[chosen], self.recur[chosen], bias, self.project[chosen])
        return _Run.apply(x_GTBD, *weights, *state_GB, going_on, self.clips)  # type: ignore[no-untyped-call, no-any-return]  # autograd is untyped


class _Kept(NamedTuple):
    """What the way back needs of the way there; without `going_on` no step begins anew."""

    x: Tensor
    read: Tensor
    recur: Tensor
    project: Tensor
    state: Tensor
    cell: Tensor
    going_on: Tensor | None
    gates: Tensor
    """Open: after the sigmoid, the new values after tanh."""
    states: Tensor
    cells: Tensor
    raised: Tensor
    """tanh of the cells."""


class _Run(torch.autograd.Function):
    """The loop over time and its way back by hand.

    Only what hangs on the step before is done step by step; products with weights that can wait are done for all
    steps at once. Against autograd this saves a weight-sized sum per step.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        read: Tensor,
        recur: Tensor,
        bias: Tensor,
        project: Tensor,
        state: Tensor,
        cell: Tensor,
        going_on: Tensor | None,
        clips: Clips,
    ) -> tuple[Tensor, Tensor]:
        with _plain(x):
            gates = torch.baddbmm(bias.view(len(read), 1, -1), x.flatten(1, 2), read).view(*x.shape[:3], -1)
            states = gates.new_empty(*gates.shape[:3], project.shape[-1])
            cells, raised = (gates.new_empty(*gates.shape[:3], cell.shape[-1]) for _ in range(2))
            kept = _Kept(x, read, recur, project, state, cell, going_on, gates, states, cells, raised)
            _forth(kept, clips)
        ctx.save_for_backward(*kept)
        ctx.clips = clips
        ctx.mark_non_differentiable(cells)
        return states, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        kept = _Kept(*ctx.saved_tensors)
        width = kept.cells.shape[-1]
        with _plain(kept.x):
            d_gates, d_states = _back(kept, grads[0].clone(), ctx.clips)
            flat, x = d_gates.flatten(1, 2), kept.x.flatten(1, 2)
            before = torch.cat([kept.state[:, None], kept.states[:, :-1]], 1)
            before = before if kept.going_on is None else before * kept.going_on
            shown = kept.gates[..., 2 * width : 3 * width] * kept.raised
            d_x = (flat @ kept.read.mT).view_as(kept.x) if ctx.needs_input_grad[0] else None
            d_recur = before.flatten(1, 2).mT @ flat
            d_project = shown.flatten(1, 2).mT @ d_states.flatten(1, 2)
        return d_x, x.mT @ flat, d_recur, flat.sum(1).flatten(), d_project, None, None, None, None


def _plain(x: Tensor) -> AbstractContextManager[object]:
    """The loop runs in its weights' own precision."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if is_autocast_available(device) else nullcontext()


def _forth(kept: _Kept, clips: Clips) -> None:
    """Fill in gates, cells and states from the first step to the last."""
    state, cell, width = kept.state, kept.cell, kept.cell.shape[-1]
    if kept.x.is_meta:  # shapes alone, for counting operations: the products of all steps at once
        torch.baddbmm(kept.gates.flatten(1, 2), kept.states.flatten(1, 2), kept.recur)
        torch.bmm(kept.cells.flatten(1, 2), kept.project)
        return
    for t in range(kept.x.shape[1]):
        if kept.going_on is not None:
            state, cell = state * kept.going_on[:, t], cell * kept.going_on[:, t]
        now = kept.gates[:, t].baddbmm_(state, kept.recur)
        opened, new = now[..., : 3 * width].sigmoid_(), now[..., 3 * width :].tanh_()
        cell = torch.mul(opened[..., width : 2 * width], cell, out=kept.cells[:, t]).addcmul_(opened[..., :width], new)
        if clips.cell is not None:
            cell.clamp_(-clips.cell, clips.cell)
        raised = torch.tanh(cell, out=kept.raised[:, t])
        state = torch.bmm(opened[..., 2 * width :] * raised, kept.project)
        if clips.state is not None:
            state.clamp_(-clips.state, clips.state)
        kept.states[:, t] = state


def _back(kept: _Kept, d_states: Tensor, clips: Clips) -> tuple[Tensor, Tensor]:
    """From the last step to the first → gradients of the gates before they opened, and of states before clipping."""
    gates, width, steps = kept.gates, kept.cell.shape[-1], kept.x.shape[1]
    d_gates = torch.empty_like(gates)
    recur, project = kept.recur.mT.contiguous(), kept.project.mT.contiguous()
    d_cell = torch.zeros_like(kept.cell)
    if kept.x.is_meta:
        torch.bmm(d_gates.flatten(1, 2), recur)
        torch.bmm(d_states.flatten(1, 2), project)
        return d_gates, d_states
    for t in range(steps - 1, -1, -1):
        d_state, raised, out = d_states[:, t], kept.raised[:, t], d_gates[:, t]
        i, f, o, g = gates[:, t].chunk(4, -1)
        if t + 1 < steps:
            d_state += _carried(torch.bmm(d_gates[:, t + 1], recur), kept.going_on, t + 1)
        if clips.state is not None:
            d_state.mul_(kept.states[:, t].abs() < clips.state)
        d_shown = torch.bmm(d_state, project)
        d_raised = d_shown * o
        d_cell = (d_cell + d_raised).addcmul_(d_raised.mul_(raised), raised, value=-1)
        if clips.cell is not None:
            d_cell.mul_(kept.cells[:, t].abs() < clips.cell)
        before = _carried(kept.cells[:, t - 1] if t else kept.cell, kept.going_on, t)
        d_i, d_f, d_o, d_g = out.chunk(4, -1)
        torch.mul(d_cell, g, out=d_i)
        torch.mul(d_cell, before, out=d_f)
        torch.mul(d_shown, raised, out=d_o)
        torch.mul(d_cell, i, out=d_g)
        d_cell = _carried(d_cell * f, kept.going_on, t)
        _shut(gates[:, t], out, width)
    return d_gates, d_states


def _shut(gates_GBZ: Tensor, d_gates_GBZ: Tensor, width: int) -> None:
    """Gradients of open gates become those of what opened them: σ' = σ − σ², tanh' = 1 − tanh²."""
    opened, d_opened = gates_GBZ[..., : 3 * width], d_gates_GBZ[..., : 3 * width]
    d_opened.mul_(torch.addcmul(opened, opened, opened, value=-1))
    new, d_new = gates_GBZ[..., 3 * width :], d_gates_GBZ[..., 3 * width :]
    d_new.addcmul_(d_new * new, new, value=-1)


def _carried(x_GBD: Tensor, going_on_GTB1: Tensor | None, t: int) -> Tensor:
    """What passes between a step and the one before it: nothing where the step begins anew."""
    return x_GBD if going_on_GTB1 is None else x_GBD * going_on_GTB1[:, t]
