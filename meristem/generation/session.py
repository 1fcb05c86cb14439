"""Texts that grow a token at a time: what greedy, sampling and beam see of a causal model, and nothing else."""

# B rows, T tokens of the longest prompt, V vocabulary

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Model, State
from meristem.blocks.logits import Logits
from meristem.blocks.vocabulary import VocabularyHead


class Session:
    """Rows of text, and for each of them the logits of its next token.

    A text may outgrow the model. A row that has filled the model's length goes on from the last half of it, read
    anew from position 0; what its next token may depend on follows from its own text alone, never from other rows.
    """

    @torch.inference_mode()
    def __init__(self, model: Model, tokens: Tensor, lengths: Tensor | None = None, *, capacity: int) -> None:
        """`tokens` [B, T] padded on the right to `lengths` [B]; `capacity` tokens of each row need no new room."""
        head = model.heads["clm"]
        assert isinstance(head, VocabularyHead)
        self._backbone = cast(Any, model.backbone)  # every family that can be causal has a cache
        self._step, self._read = self._backbone.steps(), Logits(head)
        self._length = model.backbone.length
        self._half = self._length // 2
        self._sizes = [tokens.shape[1]] * len(tokens) if lengths is None else [int(size) for size in lengths]
        if not len(tokens) or min(self._sizes) < 1:
            raise ValueError("a session needs at least one row, and each row at least one token to go on from")
        rows = [row[:size] for row, size in zip(tokens, self._sizes, strict=True)]
        rows = [row[len(row) - self._window(len(row)) :] for row in rows]
        self._sizes = [len(row) for row in rows]
        slots = min(max(capacity, *self._sizes, 1), self._length)
        self._text = tokens.new_zeros((len(rows), slots))
        self._state: State = self._backbone.cache(len(rows), slots)
        self._logits = self._read(self._fill(torch.arange(len(rows), device=tokens.device), rows))

    @property
    def logits(self) -> Tensor:
        """[B, V] for each row's next token."""
        return self._logits

    @torch.inference_mode()
    def push(self, tokens: Tensor) -> None:
        """Go on with one token [B] per row."""
        full = [row for row, size in enumerate(self._sizes) if size == self._length]
        if full:
            self._fill(torch.tensor(full, device=tokens.device), [self._text[row, -self._half :] for row in full])
        self._make_room()
        self._text.scatter_(1, self._state["next"][:, None], tokens[:, None])
        uniform = self._sizes[0] if len(set(self._sizes)) == 1 else None
        states, self._state = self._step(tokens, self._state, uniform)
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
        self._state = {key: value[rows] for key, value in self._state.items()}

    def _window(self, size: int) -> int:
        """How much of a text of this size is read: what remains after every slide back to half the length."""
        if size <= self._length:
            return size
        return self._half + 1 + (size - self._length - 1) % (self._length - self._half)

    def _fill(self, places: Tensor, rows: list[Tensor]) -> Tensor:
        """Read texts from position 0 into the slots of these places → [rows, D] after each one's last token."""
        sizes = torch.tensor([len(row) for row in rows], device=places.device)
        padded = pad_sequence(rows, batch_first=True)
        fresh = self._backbone.cache(len(rows), padded.shape[1])
        hidden = self._backbone(tokens=padded, causal=True, state=fresh)
        self._text[places, : padded.shape[1]] = padded
        self._state["cache"][places, :, :, :, : padded.shape[1]] = hidden.state["cache"]
        self._state["next"][places] = sizes
        for place, row in zip(places.tolist(), rows, strict=True):
            self._sizes[place] = len(row)
        return hidden.last[torch.arange(len(rows), device=places.device), sizes - 1]  # type: ignore[no-any-return]  # the backbone is any family

    def _make_room(self) -> None:
        """Twice as many slots where they are used up, but never more than the model's length."""
        slots = self._text.shape[1]
        if max(self._sizes) < slots:
            return
        more = min(2 * slots, self._length) - slots
        self._text = F.pad(self._text, (0, more))
        self._state["cache"] = F.pad(self._state["cache"], (0, 0, 0, more))


@contextmanager
def steady(rows: int) -> Iterator[None]:
    """One thread while a single row grows: its steps are too small to share, and waiting for each other costs more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if rows == 1 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
