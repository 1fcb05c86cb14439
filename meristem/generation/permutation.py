"""Exact log-probabilities and gap filling with a permutation language model (XLNet, Yang et al. 2019).

log p(x) = Σ log p(x_{z_t} | x_{z_<t}) for a factorisation order z, by default left to right. The query stream
predicts each token from its position and the content of those before it in the order; all positions take one pass.
Tokens that are context only (start tokens, a given context) come first in the order and attend to each other, as in
training. A gap is filled by predicting its position last: all tokens around it are visible, other gaps are not.

Longer texts use memory, segment by segment; without memory they are read in windows that overlap by half.
"""

# B rows, T tokens, K query slots

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import IntArray
from meristem.generation.cancellation import check_cancelled
from meristem.generation.generation_inputs import has_memory, input_template
from meristem.generation.head_selection import vocabulary_head
from meristem.generation.token_scores import TokenScores, forward_passes, overlapping_windows, score_token_rows
from meristem.interfaces.backbone import Hidden, Model, State
from meristem.tokenizers.tokenizer import Tokenizer

MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included: both streams attend."""
CONTEXT_RANK = 1
"""The rank of tokens that are context only; 0 is padding."""


@dataclass(frozen=True)
class TwoStreamSegment:
    """One row of a two-stream pass."""

    tokens: IntArray
    rank: IntArray
    """Rank of each token in the factorisation order."""
    slots: IntArray
    """Positions whose tokens are predicted."""
    text_start: int
    """Index in the text of the first predicted token."""


def permutation_scores(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[IntArray],
    first_scored: Sequence[int],
    orders: Sequence[Sequence[int] | None] | None = None,
) -> list[TokenScores]:
    """Scores of each text's tokens from `first_scored` on, in the given order or from left to right."""
    scores = [TokenScores.zeros(len(ids) - first) for ids, first in zip(texts, first_scored, strict=True)]
    text_orders = orders or [None] * len(texts)
    chains = [
        _segment_chains(model, tokenizer, ids, first, order)
        for ids, first, order in zip(texts, first_scored, text_orders, strict=True)
    ]
    indexed_chains = [(text_index, chain) for text_index, text_chains in enumerate(chains) for chain in text_chains]
    # chains with the same number of segments are batched, so that none waits for another
    for count in sorted({len(chain) for _, chain in indexed_chains}):
        same_count = [(text_index, chain) for text_index, chain in indexed_chains if len(chain) == count]
        for batch in forward_passes([len(chain[0].tokens) for _, chain in same_count], MAX_TOKENS_PER_PASS):
            _score_chains(model, [same_count[index] for index in batch], first_scored, scores)
    return scores


def _segment_chains(
    model: Model, tokenizer: Tokenizer, ids: IntArray, first_scored: int, order: Sequence[int] | None
) -> list[list[TwoStreamSegment]]:
    """The segments of a text: one row; independent windows; or one chain of segments linked by memory."""
    start_ids = np.array(input_template(model, tokenizer, "permutation").prompt_start_ids, np.int64)
    length = model.backbone.max_length
    if order is not None:
        _check_order(order, len(ids), length - len(start_ids))
    if first_scored >= len(ids):
        return []
    full_ids, shift = np.concatenate([start_ids, ids]), len(start_ids)
    if len(full_ids) <= length:
        return [[_build_segment(full_ids, shift + first_scored, 0, len(full_ids), shift, order)]]
    if has_memory(model):
        segment_starts = range(0, len(full_ids), length)
        return [
            [
                _build_segment(full_ids, shift + first_scored, start, min(start + length, len(full_ids)), shift)
                for start in segment_starts
            ]
        ]
    windows = overlapping_windows(len(full_ids), length, shift + first_scored)
    return [[_build_segment(full_ids, first, start, stop, shift)] for start, stop, first in windows]


def _build_segment(
    full_ids: IntArray, first_predicted: int, start: int, stop: int, shift: int, order: Sequence[int] | None = None
) -> TwoStreamSegment:
    """Positions `start` to `stop`, of which those from `first_predicted` on are predicted."""
    first = max(start, first_predicted)
    rank = np.full(stop - start, CONTEXT_RANK, np.int64)
    positions = np.arange(first, stop)
    rank[positions - start if order is None else np.array(order, np.int64) + shift] = (
        CONTEXT_RANK + 1 + np.arange(len(positions))
    )
    return TwoStreamSegment(full_ids[start:stop], rank, positions - start, first - shift)


def _check_order(order: Sequence[int], num_tokens: int, max_tokens: int) -> None:
    if sorted(order) != list(range(num_tokens)):
        raise MeristemError(
            f"order: expected each of the text's {num_tokens} tokens once, numbered 0 to {num_tokens - 1}; "
            f"got {' '.join(map(str, order))}"
        )
    if num_tokens > max_tokens:
        raise MeristemError(
            f"order: this model orders at most {max_tokens} tokens, and the text has {num_tokens}; shorten it"
        )


@torch.inference_mode()
def _score_chains(
    model: Model,
    batch: Sequence[tuple[int, list[TwoStreamSegment]]],
    first_scored: Sequence[int],
    scores: list[TokenScores],
) -> None:
    """Score texts segment by segment: the first segments together, then the second with the memory of the first, …"""
    state: State | None = None
    for segment_index in range(len(batch[0][1])):
        check_cancelled()
        rows = [chain[segment_index] for _, chain in batch]
        memory_inputs: dict[str, Any] = {}
        if len(batch[0][1]) > 1:
            memory_inputs = {
                "state": state,
                "fresh": torch.full((len(rows), 1), segment_index == 0, device=model.device),
            }
        hidden, sizes = run_two_stream(model, rows, **memory_inputs)
        state = hidden.state
        target_ids = torch.cat([torch.from_numpy(row.tokens[row.slots]) for row in rows]).to(model.device)
        states = _at_slots(hidden.last_hidden_state, sizes)
        row_scores = score_token_rows(vocabulary_head(model, "permutation"), states, target_ids, sizes)
        for (text_index, _), row, (logprobs, best) in zip(batch, rows, row_scores, strict=True):
            if len(logprobs):
                scores[text_index].put(row.text_start - first_scored[text_index], logprobs, best)


def run_two_stream(model: Model, rows: Sequence[TwoStreamSegment], **backbone_inputs: Any) -> tuple[Hidden, list[int]]:
    """One pass of both streams over rows of any length → query states [B, K, D], number of slots of each row."""
    tokens, rank, slots = (
        pad_sequence([torch.from_numpy(getattr(row, name)) for row in rows], batch_first=True).to(model.device)
        for name in ("tokens", "rank", "slots")
    )
    if not slots.shape[1]:
        slots = slots.new_zeros(len(rows), 1)  # nothing is predicted here, but the segment enters the memory
    hidden = model.backbone(tokens=tokens, order=rank, slots=slots, **backbone_inputs)
    return hidden, [len(row.slots) for row in rows]


def _at_slots(states_BKD: Tensor, sizes: Sequence[int]) -> Tensor:
    """[N, D] states without the padding slots of short rows."""
    return torch.cat([states_BKD[row, :size] for row, size in enumerate(sizes)])


@torch.inference_mode()
def permutation_gap_probs(
    model: Model, tokenizer: Tokenizer, gaps: Sequence[tuple[IntArray, int]], mask_id: int
) -> Tensor:
    """[gaps, V] token probabilities at masked positions of texts; other masks of a text stay hidden."""
    rows = [_gap_segment(model, tokenizer, ids, position, mask_id) for ids, position in gaps]
    hidden, sizes = run_two_stream(model, rows)
    logits: Tensor = vocabulary_head(model, "permutation")(_at_slots(hidden.last_hidden_state, sizes))
    return logits.float().softmax(-1).cpu()


def _gap_segment(model: Model, tokenizer: Tokenizer, ids: IntArray, position: int, mask_id: int) -> TwoStreamSegment:
    """The window around one mask with special tokens; every mask comes last in the order."""
    template = input_template(model, tokenizer, "permutation")
    start, stop = template.window_around(len(ids), position)
    tokens = template.add_special_tokens(ids[start:stop])
    rank = np.where(tokens == mask_id, CONTEXT_RANK + 1, CONTEXT_RANK)
    return TwoStreamSegment(tokens, rank, np.array([position - start + len(template.prefix_ids)]), position)
