"""Log-probabilities and gap filling with a bidirectional language model (biLM: ELMo, Peters et al. 2018).

Forward: Σ log p(x_t | start, x_<t); backward: Σ log p(x_t | x_>t, end). The start and end tokens are inputs and never
predicted, as in training. A gap is filled by both: p(w) ∝ p_forward(w | left) · p_backward(w | right), renormalised.

Texts of more than `MAX_WORDS_PER_PASS` words are processed in chunks that pass on the LSTM state, from the left for
the forward direction and from the right for the backward one.
"""

# B rows, T words, L characters of a word

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.dataset.token_dataset import IntArray
from meristem.generation.cancellation import check_cancelled
from meristem.generation.generation_inputs import pad_rows
from meristem.generation.head_selection import vocabulary_head
from meristem.generation.token_scores import TokenScores, forward_passes, score_token_rows
from meristem.inputs.char_ids import PAD_CHAR, CharIds, token_char_ids
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Model, State
from meristem.tokenizers.tokenizer import Tokenizer

MAX_WORDS_PER_PASS = 1024
"""Words of one text per forward pass; the LSTM gates of every step are kept in memory."""
MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""
FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True)
class SpelledText:
    """Token ids of a text with its start and end tokens, and the character ids of each word."""

    ids: IntArray
    char_ids: CharIds

    @classmethod
    def from_ids(cls, tokenizer: Tokenizer, ids: IntArray, words: Sequence[bytes] | None = None) -> SpelledText:
        """`words` are the surface forms of the tokens; by default their vocabulary entries."""
        template = InputTemplate(tokenizer, "both_directions")
        token_bytes = words if words is not None else [_token_bytes(tokenizer, token) for token in ids.tolist()]
        before, after = ([b""] * len(special_ids) for special_ids in (template.prefix_ids, template.suffix_ids))
        full_ids = template.add_special_tokens(ids)
        return cls(full_ids, token_char_ids(full_ids, [*before, *token_bytes, *after], tokenizer))


def _token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    return tokenizer.id_to_token(token_id).encode("utf-8", "surrogatepass")


def bilm_scores(
    model: Model, tokenizer: Tokenizer, texts: Sequence[IntArray], words: Sequence[Sequence[bytes] | None] | None = None
) -> tuple[list[TokenScores], list[TokenScores]]:
    """Forward and backward scores of the tokens of each text."""
    words_per_text = words or [None] * len(texts)
    rows = [
        SpelledText.from_ids(tokenizer, ids, text_words) for ids, text_words in zip(texts, words_per_text, strict=True)
    ]
    template = InputTemplate(tokenizer, "both_directions")
    num_special = (len(template.prefix_ids), len(template.suffix_ids))
    scores = [[TokenScores.zeros(len(ids)) for ids in texts] for _ in (FORWARD, BACKWARD)]
    for direction in (FORWARD, BACKWARD):
        for batch in forward_passes([len(ids) for ids in texts], MAX_TOKENS_PER_PASS):
            batch_scores = [scores[direction][text] for text in batch]
            _score_direction(model, [rows[text] for text in batch], direction, num_special, batch_scores)
    return scores[FORWARD], scores[BACKWARD]


def mean_scores(forward: TokenScores, backward: TokenScores) -> TokenScores:
    """The mean of both directions per token, as in the training objective; `is_top` only if it is top in both."""
    return TokenScores((forward.logprobs + backward.logprobs) / 2, forward.is_top & backward.is_top)


@torch.inference_mode()
def _score_direction(
    model: Model,
    rows: Sequence[SpelledText],
    direction: int,
    num_boundary_tokens: tuple[int, int],
    out: Sequence[TokenScores],
) -> None:
    """Fill `out` with the scores of each word, predicted from its left (forward) or right (backward) neighbour.

    Without a start or end token the first word of a direction has no context; its score stays 0.
    """
    step = 1 if direction == FORWARD else -1
    for chunk in _iter_chunks(model, rows, direction):
        check_cancelled()
        states, target_ids, sizes, starts = [], [], [], []
        for row, text in enumerate(rows):
            first, last = num_boundary_tokens[0], len(text.ids) - num_boundary_tokens[1]
            # the position that each state predicts
            predicted_positions = np.arange(chunk.start, chunk.start + chunk.sizes[row]) + step
            in_text = (predicted_positions >= first) & (predicted_positions < last)
            states.append(chunk.states_BTD[row, : chunk.sizes[row]][torch.from_numpy(in_text)])
            target_ids.append(torch.from_numpy(text.ids[predicted_positions[in_text]]))
            sizes.append(int(in_text.sum()))
            starts.append(int(predicted_positions[in_text][0]) - first if in_text.any() else 0)
        scores = score_token_rows(
            vocabulary_head(model, "bilm"), torch.cat(states), torch.cat(target_ids).to(model.device), sizes
        )
        for text_scores, start, (logprobs, best) in zip(out, starts, scores, strict=True):
            text_scores.put(start, logprobs, best)


@dataclass(frozen=True)
class _StateChunk:
    """States [B, T, D] of one direction for the words of every row from `start` on."""

    start: int
    sizes: list[int]
    states_BTD: Tensor


def _iter_chunks(model: Model, rows: Sequence[SpelledText], direction: int) -> Iterator[_StateChunk]:
    """Chunks of all rows in the order of a direction, passing on the LSTM state."""
    backbone: Any = model.backbone
    longest = max(len(row.ids) for row in rows)
    starts = list(range(0, longest, MAX_WORDS_PER_PASS))
    state: State | None = backbone.init_state(len(rows)) if len(starts) > 1 else None
    for start in starts if direction == FORWARD else reversed(starts):
        chunk_char_ids = [row.char_ids[start : start + MAX_WORDS_PER_PASS] for row in rows]
        sizes = [len(char_ids) for char_ids in chunk_char_ids]
        hidden = backbone(**char_inputs(chunk_char_ids, model.device), state=state)
        if state is not None:
            has_tokens = torch.tensor([size > 0 for size in sizes], device=model.device)
            state = {"state": torch.where(has_tokens[:, None, None, None], hidden.state["state"], state["state"])}
        yield _StateChunk(start, sizes, hidden.last_hidden_state.chunk(2, -1)[direction])


def char_inputs(rows: Sequence[CharIds], device: torch.device) -> dict[str, Tensor]:
    """Backbone inputs: character ids, padded, with a `present` mask if the rows differ in length."""
    char_ids, present = pad_rows([torch.from_numpy(row) for row in rows], device, PAD_CHAR)
    return {"characters": char_ids} if present is None else {"characters": char_ids, "present": present}


@torch.inference_mode()
def bilm_gap_probs(model: Model, gaps: Sequence[tuple[SpelledText, int]]) -> Tensor:
    """[gaps, V] probabilities of words at positions of texts with start and end tokens, from both sides.

    The word at the position itself is not an input.
    """
    hidden = model.backbone(**char_inputs([spelled_text.char_ids for spelled_text, _ in gaps], model.device))
    forward, backward = hidden.last_hidden_state.chunk(2, -1)
    rows, positions = torch.arange(len(gaps)), torch.tensor([position for _, position in gaps])
    head = vocabulary_head(model, "bilm")
    left: Tensor = head(forward[rows, positions - 1]).float().log_softmax(-1)
    right: Tensor = head(backward[rows, positions + 1]).float().log_softmax(-1)
    return (left + right).softmax(-1).cpu()
