"""Hidden states of masked language models at positions of rows of any length, and the mask token."""

from __future__ import annotations

import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.generation.generation_inputs import pad_rows
from meristem.generation.head_selection import LM_HEADS, LMKind
from meristem.interfaces.backbone import Hidden, Model
from meristem.tokenizers.tokenizer import Tokenizer


def mask_id(tokenizer: Tokenizer) -> int:
    """The id of the mask token."""
    if tokenizer.mask is None:
        raise MeristemError("this tokenizer has no mask token ([MASK] or <mask>), which a masked language model needs")
    return tokenizer.mask


def hidden_states_at(
    model: Model, rows: list[Tensor], positions: Tensor, row_indices: Tensor, lm_kind: LMKind = "masked"
) -> Tensor:
    """[n, D] hidden states at `positions` of the rows in `row_indices`; padding of shorter rows is masked.

    A model of masked next tokens (GPT-BERT) predicts the token of a position at the position before it.
    ELECTRA's generator is a model of its own with the same embeddings; its last layer is computed only here.
    """
    tokens, present = pad_rows(rows, model.device)
    if lm_kind == "masked_next":
        positions = positions - 1
    flat = row_indices.to(model.device) * tokens.shape[1] + positions.to(model.device)
    if lm_kind == "generator":
        output_positions, inverse = torch.unique(flat, return_inverse=True)
        inputs = {"tokens": tokens} if present is None else {"tokens": tokens, "present": present}
        generated: Hidden = model.heads[LM_HEADS[lm_kind]](output_positions=output_positions, **inputs)
        return generated.last_hidden_state[inverse]
    hidden: Hidden = model.backbone(tokens=tokens, present=present)
    return hidden.select(flat)
