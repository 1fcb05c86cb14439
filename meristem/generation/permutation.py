"""Exact log-probabilities and gap filling with a permutation language model (XLNet, Yang et al. 2019).

log p(x) = Σ log p(x_{z_t} | x_{z_<t}) for an order z of factorisation, left to right unless given. The query stream
predicts each token from its position and the content of those before it in the order; all positions take one pass.
What is only read (the opening of the text, a context) comes first in the order and sees itself, as in training. A gap
is filled by predicting its position last: every token round it has been read, no other gap has.

Longer texts go through memory, segment by segment; without memory they are read in windows that overlap by half.
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

from meristem.batch import Hidden, Model, State
from meristem.errors import MeristemError
from meristem.generation.framed import Frame
from meristem.generation.given import opening, remembers
from meristem.generation.token_scores import TokenScores, length_batches, token_scores
from meristem.generation.watching import go_on
from meristem.generation.way import vocabulary_head
from meristem.store.store import Ints
from meristem.tokenizers.tokenizer import Tokenizer

TOKENS = 4096
"""Read at once, padding counted: both streams attend."""
CONTEXT = 1
"""The rank of tokens that are only read; 0 is padding."""


@dataclass(frozen=True)
class Segment:
    """One row of a two-stream pass."""

    tokens: Ints
    rank: Ints
    """Each token's place in the order of factorisation."""
    slots: Ints
    """Positions whose tokens are predicted."""
    first: int
    """Where in the text the first of them stands."""


def permutation_scores(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Ints],
    since: Sequence[int],
    orders: Sequence[Sequence[int] | None] | None = None,
) -> list[TokenScores]:
    """What the model says of each text's tokens from `since` on, in the order that is given or from left to right."""
    out = [TokenScores.zeros(len(ids) - first) for ids, first in zip(texts, since, strict=True)]
    told = orders or [None] * len(texts)
    chains = [
        _chains(model, tokenizer, ids, first, order) for ids, first, order in zip(texts, since, told, strict=True)
    ]
    flat = [(text, chain) for text, some in enumerate(chains) for chain in some]
    # chains of as many segments read together, so that none waits for another
    for count in sorted({len(chain) for _, chain in flat}):
        alike = [(text, chain) for text, chain in flat if len(chain) == count]
        for batch in length_batches([len(chain[0].tokens) for _, chain in alike], TOKENS):
            _read(model, [alike[place] for place in batch], since, out)
    return out


def _chains(
    model: Model, tokenizer: Tokenizer, ids: Ints, since: int, order: Sequence[int] | None
) -> list[list[Segment]]:
    """The passes a text takes: one row; windows apart from each other; or segments that memory links."""
    before = np.array(opening(model, tokenizer, "permutation"), np.int64)
    length = model.backbone.length
    if order is not None:
        _check_order(order, len(ids), length - len(before))
    if since >= len(ids):
        return []
    read, shift = np.concatenate([before, ids]), len(before)
    if len(read) <= length:
        return [[_segment(read, shift + since, 0, len(read), shift, order)]]
    if remembers(model):
        cuts = range(0, len(read), length)
        return [[_segment(read, shift + since, start, min(start + length, len(read)), shift) for start in cuts]]
    windows, done, stride = [], shift + since, length - length // 2
    for start in range(0, len(read), stride):
        stop = min(start + length, len(read))
        if stop > done:
            windows.append([_segment(read, done, start, stop, shift)])
            done = stop
    return windows


def _segment(
    read: Ints, predicted: int, start: int, stop: int, shift: int, order: Sequence[int] | None = None
) -> Segment:
    """Positions from `start` to `stop` of what is read, of which those from `predicted` on are predicted."""
    first = max(start, predicted)
    rank = np.full(stop - start, CONTEXT, np.int64)
    places = np.arange(first, stop)
    rank[places - start if order is None else np.array(order, np.int64) + shift] = CONTEXT + 1 + np.arange(len(places))
    return Segment(read[start:stop], rank, places - start, first - shift)


def _check_order(order: Sequence[int], size: int, room: int) -> None:
    if sorted(order) != list(range(size)):
        raise MeristemError(
            f"order: expected each of the text's {size} tokens once, numbered 0 to {size - 1}; "
            f"got {' '.join(map(str, order))}"
        )
    if size > room:
        raise MeristemError(f"order: this model holds {room} tokens in one order, and the text has {size}; shorten it")


@torch.inference_mode()
def _read(
    model: Model, batch: Sequence[tuple[int, list[Segment]]], since: Sequence[int], out: list[TokenScores]
) -> None:
    """The segments of several texts, the first of each together, then the second with the memory of the first, …"""
    state: State | None = None
    for number in range(len(batch[0][1])):
        go_on()
        rows = [chain[number] for _, chain in batch]
        told: dict[str, Any] = {}
        if len(batch[0][1]) > 1:
            told = {"state": state, "fresh": torch.full((len(rows), 1), number == 0, device=model.device)}
        hidden, sizes = two_stream(model, rows, **told)
        state = hidden.state
        wanted = torch.cat([torch.from_numpy(row.tokens[row.slots]) for row in rows]).to(model.device)
        states = _at_slots(hidden.last, sizes)
        scores = token_scores(vocabulary_head(model, "permutation"), states, wanted, sizes)
        for (text, _), row, (logprobs, best) in zip(batch, rows, scores, strict=True):
            if len(logprobs):
                out[text].put(row.first - since[text], logprobs, best)


def two_stream(model: Model, rows: Sequence[Segment], **told: Any) -> tuple[Hidden, list[int]]:
    """One pass of both streams over rows of any length → query states [B, K, D], and how many slots each row has."""
    tokens, rank, slots = (
        pad_sequence([torch.from_numpy(getattr(row, name)) for row in rows], batch_first=True).to(model.device)
        for name in ("tokens", "rank", "slots")
    )
    if not slots.shape[1]:
        slots = slots.new_zeros(len(rows), 1)  # nothing is predicted here, but it is remembered
    hidden = model.backbone(tokens=tokens, order=rank, slots=slots, **told)
    return hidden, [len(row.slots) for row in rows]


def _at_slots(states_BKD: Tensor, sizes: Sequence[int]) -> Tensor:
    """[N, D] without the slots that fill up short rows."""
    return torch.cat([states_BKD[row, :size] for row, size in enumerate(sizes)])


@torch.inference_mode()
def permutation_gaps(model: Model, tokenizer: Tokenizer, gaps: Sequence[tuple[Ints, int]], mask: int) -> Tensor:
    """[gaps, V] probabilities of tokens at masked places of texts; other masks of a text stay unread."""
    rows = [_gap(model, tokenizer, ids, place, mask) for ids, place in gaps]
    hidden, sizes = two_stream(model, rows)
    return vocabulary_head(model, "permutation")(_at_slots(hidden.last, sizes)).float().softmax(-1).cpu()  # type: ignore[no-any-return]  # nn.Module.__call__


def _gap(model: Model, tokenizer: Tokenizer, ids: Ints, place: int, mask: int) -> Segment:
    """The text round one mask in its frame; every mask comes after all that is read."""
    frame = Frame.of(model, tokenizer)
    if remembers(model):  # trained on running text, where documents have their separators and no frame
        before = np.array(opening(model, tokenizer, "permutation"), np.int64)
        frame = Frame(before, before, model.backbone.length - 2 * len(before))
    start, stop = frame.window(len(ids), place)
    tokens = frame.row(ids[start:stop]).numpy()
    rank = np.where(tokens == mask, CONTEXT + 1, CONTEXT)
    return Segment(tokens, rank, np.array([place - start + len(frame.before)]), place)
