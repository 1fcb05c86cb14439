"""How likely a text is: exactly for causal models, as a pseudo-log-likelihood for masked ones.

Causal: log p(x) = Σ log p(x_t | separator, x_<t), the text read as a document that begins. A text longer than the
model is read in windows that overlap by half: every token but the first ones has at least half a window before it.
Masked: Σ log p(x_t | all others), each token hidden once (Salazar et al. 2020), in a window round it if need be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Model
from meristem.blocks.vocabulary import VocabularyHead
from meristem.generation.framed import Frame, mask_of, states_at
from meristem.generation.given import opening
from meristem.generation.way import Way, require, vocabulary_head, way_for
from meristem.store.encode import separator_of
from meristem.store.store import Ints
from meristem.tables import Tabular
from meristem.tokenizers.tokenizer import Tokenizer

TOKENS = 8192  # read at once

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Scored(Tabular):
    """A text, its log-probability, and what each token adds to it."""

    text: str
    logprob: float
    """Natural logarithm, summed over the tokens."""
    tokens: int
    per_token: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Judged:
    """What a model says of some tokens of a text."""

    logprobs: Floats
    best: NDArray[np.bool_]
    """Whether no other token was likelier."""


@dataclass(frozen=True)
class _Reading:
    """One row to read: some of its places predict tokens of one text."""

    text: int
    row: Tensor
    places: Tensor
    """Where in the row the predictions are read."""
    wanted: Tensor
    """The tokens predicted there."""
    first: int
    """Where in the text the first of them stands."""


def score(model: Model, tokenizer: Tokenizer, texts: Sequence[str], *, way: Way | None = None) -> list[Scored]:
    """The log-probability of each text; a text without tokens has 0."""
    ids = [found.ids.astype(np.int64) for found in tokenizer.encode_many(texts)]
    each = logprobs(model, tokenizer, ids, way=way)
    names = [[tokenizer.token(token) for token in one.tolist()] for one in ids]
    return [Scored(text=text, logprob=float(found.sum()), tokens=len(found),
                   per_token=tuple(zip(pieces, found.tolist(), strict=True)))
            for text, pieces, found in zip(texts, names, each, strict=True)]


def logprobs(model: Model, tokenizer: Tokenizer, texts: Sequence[Ints], *, way: Way | None = None) -> list[Floats]:
    """The log-probability of each token of texts that are already cut into ids."""
    return [found.logprobs for found in judged(model, tokenizer, texts, [0] * len(texts), way=way)]


def judged(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Ints], since: Sequence[int], *, way: Way | None = None
) -> list[Judged]:
    """What the model says of each text's tokens from `since` on; those before are only read."""
    way = way or way_for(model, "score")
    require(model, way, "this score")
    out = [Judged(np.zeros(len(ids) - first), np.zeros(len(ids) - first, bool))
           for ids, first in zip(texts, since, strict=True)]
    rows = _causal(model, tokenizer, texts, since) if way == "causal" else _masked(model, tokenizer, texts, since)
    for group in _groups(rows):
        for reading, (found, best) in zip(group, _logprobs(model, group, way), strict=True):
            first = reading.first - since[reading.text]
            out[reading.text].logprobs[first : first + len(found)] = found.cpu().numpy()
            out[reading.text].best[first : first + len(found)] = best.cpu().numpy()
    return out


def _causal(model: Model, tokenizer: Tokenizer, texts: Sequence[Ints], since: Sequence[int]) -> Iterator[_Reading]:
    """Windows that overlap by half; each token is predicted in the first that holds it."""
    length = model.backbone.length
    stride = length - length // 2
    before = (opening(model, tokenizer) or [separator_of(tokenizer)])[-1]
    for number, ids in enumerate(texts):
        read = np.concatenate([[before], ids])  # position t predicts token t of the text
        start, done = 0, since[number]
        while done < len(ids):
            stop = min(start + length, len(ids))
            if stop > done:
                yield _Reading(number, torch.from_numpy(read[start:stop]), torch.arange(done - start, stop - start),
                               torch.from_numpy(ids[done:stop]), done)
                done = stop
            start += stride


def _masked(model: Model, tokenizer: Tokenizer, texts: Sequence[Ints], since: Sequence[int]) -> Iterator[_Reading]:
    """One row for each token, in which it is hidden."""
    frame, mask = Frame.of(model, tokenizer), mask_of(tokenizer)
    for number, ids in enumerate(texts):
        for at in range(since[number], len(ids)):
            start, stop = frame.window(len(ids), at)
            row = frame.row(ids[start:stop])
            place = at - start + len(frame.before)
            row[place] = mask
            yield _Reading(number, row, torch.tensor([place]), torch.from_numpy(ids[at : at + 1]), at)


def _groups(rows: Iterator[_Reading]) -> Iterator[list[_Reading]]:
    """Rows of like length together, as many as are read at once; sorted within a horizon, so that memory stays flat."""
    horizon: list[_Reading] = []
    waiting = 0
    for row in rows:
        horizon.append(row)
        waiting += len(row.row)
        if waiting >= 16 * TOKENS:
            yield from _cut(horizon)
            horizon, waiting = [], 0
    yield from _cut(horizon)


def _cut(rows: list[_Reading]) -> Iterator[list[_Reading]]:
    group: list[_Reading] = []
    for row in sorted(rows, key=lambda one: len(one.row)):
        if group and (len(group) + 1) * len(row.row) > TOKENS:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


@torch.inference_mode()
def _logprobs(model: Model, group: list[_Reading], way: Way) -> Iterator[tuple[Tensor, Tensor]]:
    """Per row the log-probabilities of what it predicts, and which are the best; logits exist only there, in chunks."""
    places = torch.cat([one.places for one in group])
    owners = torch.repeat_interleave(torch.arange(len(group)), torch.tensor([len(one.places) for one in group]))
    if way != "causal":
        states = states_at(model, [one.row for one in group], places, owners, way)
    else:  # padding comes later in the row, so that nothing sees it
        tokens = pad_sequence([one.row for one in group], batch_first=True).to(model.device)
        states = model.backbone(tokens=tokens, causal=True).at((owners * tokens.shape[1] + places).to(model.device))
    wanted = torch.cat([one.wanted for one in group]).to(model.device)
    return split(vocabulary_head(model, way), states, wanted, [len(one.places) for one in group])


def split(head: VocabularyHead, states: Tensor, wanted: Tensor, sizes: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities of these tokens and whether each is the best, row by row."""
    found = head.judge(states, wanted)
    assert found.rank_N is not None  # there is no gradient here
    return zip(torch.split(-found.each_N, sizes), torch.split(found.rank_N == 0, sizes), strict=True)
