"""Incremental decoding with a KV cache: prefill, then one decode step per token for a batch of rows.

Greedy decoding, sampling and beam search use a model through `DecodeSession` alone.
"""

# B rows, T tokens of the longest prompt, V vocabulary

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.blocks.incremental.next_token_logits import NextTokenLogits
from meristem.blocks.incremental.state_concat import concat_inputs
from meristem.generation.cancellation import check_cancelled
from meristem.generation.generation_inputs import has_encoder_inputs
from meristem.generation.head_selection import LMKind, lm_kind_for, vocabulary_head
from meristem.interfaces.backbone import IncrementalDecoder, Model


@dataclass(frozen=True)
class DecoderModules:
    """Decoder and head of a model, built once: weights are copied into a layout that is fast for few rows."""

    decoder: IncrementalDecoder
    lm_head: NextTokenLogits

    @classmethod
    def from_model(cls, model: Model, lm_kind: LMKind) -> DecoderModules:
        """The decoder of a model with the head of this kind."""
        # every family that can generate has an incremental decoder
        return cls(cast(Any, model.backbone).incremental_decoder(), NextTokenLogits(vocabulary_head(model, lm_kind)))


class DecodeSession:
    """A decoding batch: rows of tokens, their KV cache (or recurrent state) and the logits of the next token of each.

    A text may outgrow the model. A row that has filled the maximum length continues from its last half, prefilled again
    from position 0; its next token depends on its own tokens alone, never on other rows.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Model | DecoderModules,
        tokens: Tensor,
        lengths: Tensor | None = None,
        *,
        capacity: int,
        **inputs: Tensor,
    ) -> None:
        """Prefill `tokens` [B, T], padded on the right, of `lengths` [B]; `capacity` is the initial cache size per row.

        `inputs` are the encoder inputs, batched.
        """
        if isinstance(model, Model):
            means = DecoderModules.from_model(model, lm_kind_for(model, "generate", source=has_encoder_inputs(inputs)))
        else:
            means = model
        self._decoder, self._lm_head, self._inputs = means.decoder, means.lm_head, inputs
        self._max_length = self._decoder.max_length or sys.maxsize
        self._half_length = self._max_length // 2
        sizes = [tokens.shape[1]] * len(tokens) if lengths is None else [int(size) for size in lengths]
        if not len(tokens) or min(sizes) < 1:
            raise ValueError("a session needs at least one row, and each row at least one token")
        rows = [row[:size] for row, size in zip(tokens, sizes, strict=True)]
        rows = [row[len(row) - self._window_size(len(row)) :] for row in rows]
        self._sizes = [len(row) for row in rows]
        slots = min(max(capacity, *self._sizes, 1), self._max_length)
        padded = pad_sequence(rows, batch_first=True)
        self._token_ids = F.pad(padded, (0, slots - padded.shape[1]))
        fresh = self._decoder.init_state(len(rows), slots, **inputs)
        states, self._state = self._decoder.prefill(padded, torch.tensor(self._sizes, device=tokens.device), fresh)
        self._logits = self._lm_head(states)

    @property
    def logits(self) -> Tensor:
        """[B, V] logits of the next token of each row."""
        return self._logits

    @torch.inference_mode()
    def decode_step(self, tokens: Tensor) -> None:
        """Append one token [B] per row and compute the next logits."""
        check_cancelled()
        full = [row for row, size in enumerate(self._sizes) if size == self._max_length]
        if full:
            self._slide_window(torch.tensor(full, device=tokens.device))
        self._ensure_capacity()
        uniform = self._sizes[0] if len(set(self._sizes)) == 1 else None
        if uniform is None:
            self._token_ids.scatter_(1, torch.tensor(self._sizes, device=tokens.device)[:, None], tokens[:, None])
        else:
            self._token_ids[:, uniform] = tokens
        states, self._state = self._decoder.decode_step(tokens, self._state, uniform)
        self._sizes = [size + 1 for size in self._sizes]
        self._logits = self._lm_head(states)

    @torch.inference_mode()
    def select_rows(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may be repeated, and rows not listed are dropped."""
        row_indices = rows.tolist()
        if row_indices == list(range(len(self._sizes))):
            return
        self._sizes = [self._sizes[row] for row in row_indices]
        self._token_ids, self._logits = self._token_ids[rows], self._logits[rows]
        # index_select copies each row in one piece; `value[rows]` goes through every element
        self._state = {key: value.index_select(0, rows) for key, value in self._state.items()}
        self._inputs = {key: value[rows] for key, value in self._inputs.items()}

    def take_rows(self, rows: list[int]) -> DecodeSession:
        """A new session with these rows; the caller must drop them from this one, since their state may be shared."""
        out = copy.copy(self)
        out.select_rows(torch.tensor(rows, device=self._token_ids.device))
        return out

    @torch.inference_mode()
    def extend(self, other: DecodeSession) -> None:
        """Append the rows of another session of the same model; the other must not be used afterwards."""
        slots = max(self._token_ids.shape[1], other._token_ids.shape[1])
        for session in (self, other):
            session._grow_to(slots)
        self._state = self._decoder.concat_states(self._state, other._state)
        self._inputs = concat_inputs(self._inputs, other._inputs)
        self._token_ids = torch.cat([self._token_ids, other._token_ids])
        self._logits = torch.cat([self._logits, other._logits])
        self._sizes += other._sizes

    def _window_size(self, num_tokens: int) -> int:
        """How many of the last tokens of a text are read: what remains after every slide back to half the length."""
        if num_tokens <= self._max_length:
            return num_tokens
        return self._half_length + 1 + (num_tokens - self._max_length - 1) % (self._max_length - self._half_length)

    def _slide_window(self, rows: Tensor) -> None:
        """Full rows continue from the last half of their tokens, prefilled again from position 0."""
        tail = self._token_ids[rows, -self._half_length :]
        fresh = self._decoder.init_state(
            len(rows), self._half_length, **{key: value[rows] for key, value in self._inputs.items()}
        )
        _, state = self._decoder.prefill(tail, torch.full_like(rows, self._half_length), fresh)
        state = self._decoder.grow_state(state, self._token_ids.shape[1])
        for key, value in state.items():
            self._state[key][rows] = value
        self._token_ids[rows, : self._half_length] = tail
        for row in rows.tolist():
            self._sizes[row] = self._half_length

    def _ensure_capacity(self) -> None:
        """Double the cache slots when they are used up, to at most the model's length."""
        slots = self._token_ids.shape[1]
        if max(self._sizes) < slots:
            return
        self._grow_to(min(2 * slots, self._max_length))

    def _grow_to(self, slots: int) -> None:
        """Grow the cache to this many tokens per row."""
        if slots > self._token_ids.shape[1]:
            self._token_ids = F.pad(self._token_ids, (0, slots - self._token_ids.shape[1]))
            self._state = self._decoder.grow_state(self._state, slots)


@contextmanager
def limit_threads(rows: int) -> Iterator[None]:
    """Use one thread for a single row: its steps are too small to gain from more, which must wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if rows == 1 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
