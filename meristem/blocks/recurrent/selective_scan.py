"""Selective scan of state-space models (Gu and Dao 2023, Mamba), fast on CPUs, and the causal depthwise convolution.

h_t = exp(Δ_t A) h_{t−1} + Δ_t B_t x_t,    y_t = C_t · h_t        (per channel; h_t has N values)
"""

# B batch, T tokens, E channels, N state size, Q tokens of one chunk, K kernel size,
# S = K − 1 + T tokens with those before the segment

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from meristem.blocks.precision import at_least_float32, autocast_disabled

CHUNK_ELEMENTS, MIN_CHUNK_TOKENS = 1 << 19, 8
"""Values of the states of one chunk: 2 MB stay in a core's cache; and at least this many tokens per chunk."""


def selective_scan(
    x_BTE: Tensor,
    dt_BTE: Tensor,
    a_NE: Tensor,
    b_BTN: Tensor,
    c_BTN: Tensor,
    state_BNE: Tensor,
    continues_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Outputs y [B, T, E], and the state [B, N, E] after the last token, without gradient; float32 or wider.

    `a_NE` is negative and dt positive, so that a state decays. A token with dt = 0 leaves the state as it is; where
    `continues` is false a token starts from a zero state.
    """
    tensors = (at_least_float32(tensor) for tensor in (x_BTE, dt_BTE, a_NE, b_BTN, c_BTN, state_BNE))
    return _SelectiveScan.apply(*tensors, continues_BT)  # type: ignore[no-untyped-call, no-any-return]  # autograd is untyped


class _Chunk(NamedTuple):
    """Decays and states of one chunk of tokens."""

    decay_BQNE: Tensor
    """exp(Δ A); zero where a token does not continue the state before it."""
    states_BQNE: Tensor


class _SelectiveScan(torch.autograd.Function):
    """The scan in chunks, with a hand-written backward pass that computes the states of a chunk again.

    Only the states between chunks are saved, not all T · N · E values of a row. All steps of a chunk but the
    recurrence itself are computed at once. E comes last, where it is contiguous and long enough to vectorize.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, continues: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        output, starts = torch.empty_like(dt), []
        with autocast_disabled(x.device):
            ctx.slices = _chunk_slices(dt.shape[1], state.numel())
            for chunk_slice in ctx.slices:
                starts.append(state)
                chunk = _run_chunk(x, dt, a, b, state, continues, chunk_slice)
                output[chunk_slice] = (c[chunk_slice].unsqueeze(2) @ chunk.states_BQNE).squeeze(2)
                state = chunk.states_BQNE[:, -1].clone()
        ctx.save_for_backward(x, dt, a, b, c, continues, *starts)
        ctx.mark_non_differentiable(state)
        return output, state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, dt, a, b, c, continues, *starts = ctx.saved_tensors
        d_x, d_dt, d_a, d_b, d_c = (torch.zeros_like(tensor) for tensor in (x, dt, a, b, c))
        d_next = torch.zeros_like(starts[0])
        with autocast_disabled(x.device):
            for start, s in zip(reversed(starts), reversed(ctx.slices), strict=True):
                chunk = _run_chunk(x, dt, a, b, start, continues, s)
                d_y = grads[0][s]
                d_c[s] = (chunk.states_BQNE @ d_y.unsqueeze(3)).squeeze(3)
                d_states, d_next = _state_gradients(chunk, c[s].unsqueeze(3) * d_y.unsqueeze(2), d_next)
                d_b[s] = (d_states @ (dt[s] * x[s]).unsqueeze(3)).squeeze(3)
                d_input = (b[s].unsqueeze(2) @ d_states).squeeze(2)
                d_exponent = d_states.mul_(chunk.decay_BQNE)
                d_exponent[:, 0].mul_(start)
                d_exponent[:, 1:].mul_(chunk.states_BQNE[:, :-1])
                d_a += torch.mul(d_exponent, dt[s].unsqueeze(2), out=chunk.decay_BQNE).sum((0, 1))
                d_dt[s] = torch.addcmul(d_exponent.mul_(a).sum(2), d_input, x[s])
                d_x[s] = d_input * dt[s]
        return d_x, d_dt, d_a, d_b, d_c, None, None


def _chunk_slices(num_tokens: int, state_elements: int) -> list[tuple[slice, slice]]:
    """The chunks of a sequence as indices [:, start:stop]; their length does not change the result."""
    length = max(MIN_CHUNK_TOKENS, CHUNK_ELEMENTS // max(1, state_elements))
    return [(slice(None), slice(start, start + length)) for start in range(0, num_tokens, length)]


def _run_chunk(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, start: Tensor, continues: Tensor | None, s: tuple[slice, slice]
) -> _Chunk:
    """The states of a chunk that begins with the state `start` [B, N, E]."""
    decay = torch.mul(dt[s].unsqueeze(2), a).exp_()
    if continues is not None:
        decay.mul_(continues[s][:, :, None, None])
    states = b[s].unsqueeze(3) * (dt[s] * x[s]).unsqueeze(2)
    previous = start
    for decay_BNE, state_BNE in zip(decay.unbind(1), states.unbind(1), strict=True):
        previous = state_BNE.addcmul_(decay_BNE, previous)
    return _Chunk(decay, states)


def _state_gradients(chunk: _Chunk, d_states: Tensor, d_next_BNE: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a chunk's states, from those by its outputs (changed in place) and of the chunk after it; and the
    gradient of the state before the chunk."""
    decays, steps = chunk.decay_BQNE.unbind(1), d_states.unbind(1)
    d_state = steps[-1].add_(d_next_BNE)
    for step, decay in zip(reversed(steps[:-1]), reversed(decays[1:]), strict=True):
        d_state = step.addcmul_(decay, d_state)
    return d_states, decays[0] * d_state


def causal_convolution(
    padded_BSE: Tensor, weight_EK: Tensor, bias_E: Tensor, visible: Sequence[Tensor | None]
) -> Tensor:
    """Depthwise convolution of each token and the K − 1 before it: [B, K − 1 + T, E] → [B, T, E].

    The first K − 1 positions come before the first token. `visible[k]` [B, T, 1] is false where a token must not see
    the one k before it.
    """
    kernel_size = weight_EK.shape[1]
    num_tokens, output = padded_BSE.shape[1] - kernel_size + 1, bias_E
    for distance in range(kernel_size):
        first = kernel_size - 1 - distance
        tokens, mask = padded_BSE[:, first : first + num_tokens], visible[distance]
        output = torch.addcmul(output, tokens if mask is None else tokens * mask, weight_EK[:, first])
    return output


@dataclass(frozen=True)
class SegmentMasks:
    """Which tokens a row's recurrence passes on and continues; the same for every layer. None means all."""

    present_BT: Tensor | None
    """False at padding, which is on the right and leaves the state as it is."""
    continues_BT: Tensor | None
    """False where a token begins a document, and so a new state."""
    visible: tuple[Tensor | None, ...]
    """By distance 0 … K − 1: [B, T, 1], false where the token that far back belongs to another document."""
    in_last_document_BS: Tensor | None
    """[B, S]: positions in the document of the row's last token, the K − 1 before the segment first."""

    @classmethod
    def build(
        cls, present_BT: Tensor | None, documents_BT: Tensor | None, last_document_B1: Tensor, kernel_size: int
    ) -> SegmentMasks:
        """`last_document_B1` is the document that the state before the segment comes from."""
        if documents_BT is None:
            return cls(present_BT, None, (None,) * kernel_size, None)
        num_tokens = documents_BT.shape[1]
        padded_BS = torch.cat([last_document_B1.expand(-1, kernel_size - 1), documents_BT], 1)
        visible = [
            documents_BT == padded_BS[:, kernel_size - 1 - distance :][:, :num_tokens]
            for distance in range(kernel_size)
        ]
        continues_BT = visible[1] if present_BT is None else visible[1] | ~present_BT
        in_last_document = padded_BS == last_documents(documents_BT, present_BT)
        return cls(present_BT, continues_BT, (None, *(mask[..., None] for mask in visible[1:])), in_last_document)

    def next_window(self, padded_BSE: Tensor, kernel_size: int) -> Tensor:
        """The last K − 1 positions of each row [B, K − 1, E], zero where they belong to another document."""
        if self.in_last_document_BS is not None:
            padded_BSE = padded_BSE * self.in_last_document_BS[..., None]
        if self.present_BT is None:
            return padded_BSE[:, padded_BSE.shape[1] - kernel_size + 1 :]
        index_BK = self.present_BT.sum(1, keepdim=True) + torch.arange(kernel_size - 1, device=padded_BSE.device)
        return padded_BSE.gather(1, index_BK[..., None].expand(-1, -1, padded_BSE.shape[2]))


def last_documents(documents_BT: Tensor, present_BT: Tensor | None) -> Tensor:
    """[B, 1] the document of each row's last token."""
    if present_BT is None:
        return documents_BT[:, -1:]
    return documents_BT.gather(1, present_BT.sum(1, keepdim=True) - 1)
