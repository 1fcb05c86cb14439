"""Inputs of masked language models: a text with its special tokens, windows of the model's length, hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.config.errors import MeristemError
from meristem.dataset.rows import boundary_tokens
from meristem.dataset.token_dataset import IntArray
from meristem.generation.head_selection import LM_HEADS, LMKind
from meristem.interfaces.batch import Hidden, Model
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskedInputTemplate:
    """The special tokens before and after the text of a row, and the maximum text length."""

    prefix_ids: IntArray
    suffix_ids: IntArray
    max_text_tokens: int

    @classmethod
    def from_tokenizer(cls, model: Model, tokenizer: Tokenizer) -> MaskedInputTemplate:
        """The special tokens that this tokenizer's rows had in training."""
        before, after = boundary_tokens(tokenizer)
        return cls(before, after, model.backbone.max_length - len(before) - len(after))

    def window_around(self, num_tokens: int, position: int) -> tuple[int, int]:
        """The window (start, stop) of a text of `num_tokens` tokens that is read to predict a position."""
        start = max(0, min(position - self.max_text_tokens // 2, num_tokens - self.max_text_tokens))
        return start, min(num_tokens, start + self.max_text_tokens)

    def build_row(self, ids: NDArray[Any]) -> Tensor:
        """Token ids with the special tokens around them."""
        return torch.from_numpy(np.concatenate([self.prefix_ids, ids, self.suffix_ids]).astype(np.int64))


def mask_id(tokenizer: Tokenizer) -> int:
    """The id of the mask token."""
    if tokenizer.mask is None:
        raise MeristemError("this tokenizer has no mask token ([MASK] or <mask>), which a masked language model needs")
    return tokenizer.mask


def hidden_states_at(
    model: Model, rows: list[Tensor], positions: Tensor, row_indices: Tensor, lm_kind: LMKind = "masked"
) -> Tensor:
    """[n, D] hidden states at `positions` of the rows in `row_indices`; padding of shorter rows is masked.

    ELECTRA's generator is a model of its own with the same embeddings; its last layer is computed only here.
    """
    tokens = pad_sequence(rows, batch_first=True).to(model.device)
    sizes = torch.tensor([len(row) for row in rows], device=model.device)
    present = None
    if len({len(row) for row in rows}) > 1:
        present = torch.arange(tokens.shape[1], device=model.device) < sizes[:, None]
    flat = row_indices.to(model.device) * tokens.shape[1] + positions.to(model.device)
    if lm_kind == "generator":
        wanted, back = torch.unique(flat, return_inverse=True)
        inputs = {"tokens": tokens} if present is None else {"tokens": tokens, "present": present}
        found: Hidden = model.heads[LM_HEADS[lm_kind]](wanted=wanted, **inputs)
        return found.last_hidden_state[back]
    hidden: Hidden = model.backbone(tokens=tokens, present=present)
    return hidden.select(flat)
