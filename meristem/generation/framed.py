"""Text as a masked model was trained to read it: between start and separator, in windows no longer than the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Hidden, Model
from meristem.errors import MeristemError
from meristem.generation.way import HEADS, Way
from meristem.store.rows import frame_of
from meristem.store.store import Ints
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Frame:
    """What stands before and after the text of a row, and how much text fits between."""

    before: Ints
    after: Ints
    room: int

    @classmethod
    def of(cls, model: Model, tokenizer: Tokenizer) -> Frame:
        """The frame that this tokenizer's rows had in training."""
        before, after = frame_of(tokenizer)
        return cls(before, after, model.backbone.length - len(before) - len(after))

    def window(self, size: int, at: int) -> tuple[int, int]:
        """The stretch of a text of this size that is read to predict a position: all that fits round it."""
        start = max(0, min(at - self.room // 2, size - self.room))
        return start, min(size, start + self.room)

    def row(self, ids: NDArray[Any]) -> Tensor:
        """A stretch in its frame."""
        return torch.from_numpy(np.concatenate([self.before, ids, self.after]).astype(np.int64))


def mask_of(tokenizer: Tokenizer) -> int:
    """The id that hides a token."""
    if tokenizer.mask is None:
        raise MeristemError("this tokenizer has no mask token ([MASK] or <mask>), which a masked model needs")
    return tokenizer.mask


def states_at(model: Model, rows: list[Tensor], places: Tensor, owners: Tensor, way: Way = "masked") -> Tensor:
    """[n, D] the states at `places` of the rows that `owners` name; shorter rows are padded and nothing sees that.

    ELECTRA's generator is a model of its own over the same embeddings; its last layer is computed there alone.
    """
    tokens = pad_sequence(rows, batch_first=True).to(model.device)
    sizes = torch.tensor([len(row) for row in rows], device=model.device)
    present = None
    if len({len(row) for row in rows}) > 1:
        present = torch.arange(tokens.shape[1], device=model.device) < sizes[:, None]
    flat = owners.to(model.device) * tokens.shape[1] + places.to(model.device)
    if way == "generator":
        wanted, back = torch.unique(flat, return_inverse=True)
        inputs = {"tokens": tokens} if present is None else {"tokens": tokens, "present": present}
        found: Hidden = model.heads[HEADS[way]](wanted=wanted, **inputs)
        return found.last[back]
    hidden: Hidden = model.backbone(tokens=tokens, present=present)
    return hidden.at(flat)
