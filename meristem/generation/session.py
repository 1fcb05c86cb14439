"""Texts that grow a token at a time: what greedy, sampling and beam see of a model that writes, and nothing else."""

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

from meristem.batch import Model, Writer
from meristem.blocks.joining import joined_inputs
from meristem.blocks.logits import Logits
from meristem.generation.given import has_source
from meristem.generation.watching import go_on
from meristem.generation.way import Way, vocabulary_head, way_for


@dataclass(frozen=True)
class Means:
    """What sessions of a model write with: made once, since weights are copied so that few rows read them fast."""

    writer: Writer
    read: Logits

    @classmethod
    def of(cls, model: Model, way: Way) -> Means:
        """Those of a model that writes this way."""
        # every family that can write has a writer
        return cls(cast(Any, model.backbone).writer(), Logits(vocabulary_head(model, way)))


class Session:
    """Rows of text, and for each of them the logits of its next token.

    A text may outgrow the model. A row that has filled the model's length goes on from the last half of it, read
    anew from position 0; what its next token may depend on follows from its own text alone, never from other rows.
    """

    @torch.inference_mode()
    def __init__(
        self, model: Model | Means, tokens: Tensor, lengths: Tensor | None = None, *, capacity: int, **inputs: Tensor
    ) -> None:
        """`tokens` [B, T] padded on the right to `lengths` [B]; `capacity` tokens of each row need no new room.

        `inputs` are what an encoder reads beside them, a row for each row.
        """
        if isinstance(model, Model):
            means = Means.of(model, way_for(model, "generate", source=has_source(inputs)))
        else:
            means = model
        self._writer, self._read, self._inputs = means.writer, means.read, inputs
        self._length = self._writer.length or sys.maxsize
        self._half = self._length // 2
        sizes = [tokens.shape[1]] * len(tokens) if lengths is None else [int(size) for size in lengths]
        if not len(tokens) or min(sizes) < 1:
            raise ValueError("a session needs at least one row, and each row at least one token to go on from")
        rows = [row[:size] for row, size in zip(tokens, sizes, strict=True)]
        rows = [row[len(row) - self._window(len(row)) :] for row in rows]
        self._sizes = [len(row) for row in rows]
        slots = min(max(capacity, *self._sizes, 1), self._length)
        padded = pad_sequence(rows, batch_first=True)
        self._text = F.pad(padded, (0, slots - padded.shape[1]))
        fresh = self._writer.begin(len(rows), slots, **inputs)
        states, self._state = self._writer.read(padded, torch.tensor(self._sizes, device=tokens.device), fresh)
        self._logits = self._read(states)

    @property
    def logits(self) -> Tensor:
        """[B, V] for each row's next token."""
        return self._logits

    @torch.inference_mode()
    def push(self, tokens: Tensor) -> None:
        """Go on with one token [B] per row."""
        go_on()
        full = [row for row, size in enumerate(self._sizes) if size == self._length]
        if full:
            self._slide(torch.tensor(full, device=tokens.device))
        self._make_room()
        self._text.scatter_(1, torch.tensor(self._sizes, device=tokens.device)[:, None], tokens[:, None])
        uniform = self._sizes[0] if len(set(self._sizes)) == 1 else None
        states, self._state = self._writer.step(tokens, self._state, uniform)
        self._sizes = [size + 1 for size in self._sizes]
        self._logits = self._read(states)

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order; a row may be named twice, and one not named is dropped."""
        wanted = rows.tolist()
        if wanted == list(range(len(self._sizes))):
            return
        self._sizes = [self._sizes[row] for row in wanted]
        self._text, self._logits = self._text[rows], self._logits[rows]
        # row by row in one piece: `value[rows]` goes through every element
        self._state = {key: value.index_select(0, rows) for key, value in self._state.items()}
        self._inputs = {key: value[rows] for key, value in self._inputs.items()}

    def rows(self, places: list[int]) -> Session:
        """A session of these rows alone, as they are: other rows of this one are to be kept, these dropped."""
        out = copy.copy(self)
        out.keep(torch.tensor(places, device=self._text.device))
        return out

    @torch.inference_mode()
    def join(self, other: Session) -> None:
        """Take in the rows of another session of the same model, behind its own; the other is used up."""
        slots = max(self._text.shape[1], other._text.shape[1])
        for one in (self, other):
            one._widen(slots)
        self._state = self._writer.join(self._state, other._state)
        self._inputs = joined_inputs(self._inputs, other._inputs)
        self._text = torch.cat([self._text, other._text])
        self._logits = torch.cat([self._logits, other._logits])
        self._sizes += other._sizes

    def _window(self, size: int) -> int:
        """How much of a text of this size is read: what remains after every slide back to half the length."""
        if size <= self._length:
            return size
        return self._half + 1 + (size - self._length - 1) % (self._length - self._half)

    def _slide(self, places: Tensor) -> None:
        """Rows that are full go on from the last half of their text, read anew from position 0."""
        tail = self._text[places, -self._half :]
        fresh = self._writer.begin(
            len(places), self._half, **{key: value[places] for key, value in self._inputs.items()}
        )
        _, state = self._writer.read(tail, torch.full_like(places, self._half), fresh)
        state = self._writer.grow(state, self._text.shape[1])
        for key, value in state.items():
            self._state[key][places] = value
        self._text[places, : self._half] = tail
        for place in places.tolist():
            self._sizes[place] = self._half

    def _make_room(self) -> None:
        """Twice as many slots where they are used up, but never more than the model's length."""
        slots = self._text.shape[1]
        if max(self._sizes) < slots:
            return
        self._widen(min(2 * slots, self._length))

    def _widen(self, slots: int) -> None:
        """Room for so many tokens a row."""
        if slots > self._text.shape[1]:
            self._text = F.pad(self._text, (0, slots - self._text.shape[1]))
            self._state = self._writer.grow(self._state, slots)


@contextmanager
def steady(rows: int) -> Iterator[None]:
    """One thread while a single row grows: its steps are too small to share, and waiting for each other costs more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if rows == 1 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
