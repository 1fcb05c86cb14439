"""Log-probability of texts, and of targets or continuations given a source (docs/using.md).

Causal: log p(x) = Σ log p(x_t | separator, x_<t), the text read as a document that begins. A text longer than the
model is read in windows that overlap by half: every token but the first ones has at least half a window before it.
Permutation (XLNet): exact in a given order. Bidirectional LSTM (ELMo): forward and backward, and their mean.
Masked, and ELECTRA's generator: Σ log p(x_t | all others), each token hidden once (Salazar et al. 2020), in a window
round it if need be. Encoder-decoders: a target given its source; a denoising one also scores a text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.bilm import bilm_scores, mean_scores
from meristem.generation.framed import Frame, mask_of, states_at
from meristem.generation.given import Prompt, opening
from meristem.generation.permutation import permutation_scores
from meristem.generation.target import infilling_of, target_of, target_scores
from meristem.generation.token_scores import TOKENS, Floats, TokenScores, token_scores
from meristem.generation.watching import go_on, tokens_per_pass
from meristem.generation.way import Way, require, text_ways, vocabulary_head, way_for
from meristem.store.encode import separator_of
from meristem.store.letters import written_words
from meristem.store.store import Ints
from meristem.tables import Tabular
from meristem.tokenizers.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, kw_only=True)
class Scored(Tabular):
    """A text, its log-probability, and what each token adds to it."""

    text: str
    """What was scored; with `text_b` what that was scored after, or from."""
    logprob: float
    """Natural logarithm, summed over the tokens."""
    tokens: int
    per_token: tuple[tuple[str, float], ...]
    text_b: str | None = None
    """The target or continuation whose log-probability this is."""
    forward: float | None = None
    backward: float | None = None
    """Of a bidirectional LSTM: the log-probability in each direction, of which `logprob` is the mean."""


def score(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Prompt],
    *,
    text_b: Sequence[str] | None = None,
    order: Sequence[int] | None = None,
    way: Way | None = None,
) -> list[Scored]:
    """The log-probability of each text, or of each `text_b` given its text (or image); none has no tokens and 0.

    `order` is a permutation model's order of factorisation: the numbers of a text's tokens, first predicted first.
    """
    pictured = not all(isinstance(one, str) for one in texts)
    from_text = text_b is not None and "source" in text_ways(model)
    way = way or way_for(model, "score", source=pictured or from_text)
    if order is not None and way != "permutation":
        raise MeristemError(f"order: only a permutation model (objective=plm, xlnet) follows one; this one is {way}")
    if text_b is not None and len(text_b) != len(texts):
        raise MeristemError(f"text_b: {len(texts)} texts need as many second ones, not {len(text_b)}")
    if way == "source":
        return _from_sources(model, tokenizer, texts, text_b)
    plain = [one for one in texts if isinstance(one, str)]
    if len(plain) < len(texts):
        raise MeristemError(f"this {type(model.backbone).__name__} reads no pictures; give a text")
    if text_b is not None:
        return _continuations(model, tokenizer, plain, text_b, way)
    if way == "bilm":
        return _both_directions(model, tokenizer, plain, tokenizer.encode_many(plain))
    ids = [one.astype(np.int64) for one in tokenizer.ids_each(plain)]
    found = judged(model, tokenizer, ids, [0] * len(ids), way=way, orders=None if order is None else [order] * len(ids))
    return [_scored(tokenizer, *each) for each in zip(plain, ids, found, strict=True)]


def _scored(
    tokenizer: Tokenizer, text: Prompt, ids: Ints, found: TokenScores, text_b: str | None = None
) -> Scored:
    pieces = tokenizer.pieces(ids)
    shown = text if isinstance(text, str) else ""
    return Scored(text=shown, text_b=text_b, logprob=float(found.logprobs.sum()), tokens=len(ids),
                  per_token=tuple(zip(pieces, found.logprobs.tolist(), strict=True)))  # fmt: skip


def _from_sources(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Prompt], text_b: Sequence[str] | None
) -> list[Scored]:
    """Targets given their sources, their ends included; a text alone as infilling."""
    if text_b is None:
        every = tokenizer.encode_many([str(text) for text in texts])
        targets = [infilling_of(model, tokenizer, one.ids.astype(np.int64)) for one in every]
    else:
        targets = [target_of(model, tokenizer, *pair) for pair in zip(texts, text_b, strict=True)]
    seconds: Sequence[str | None] = text_b or [None] * len(texts)
    found = target_scores(model, targets)
    return [
        _scored(tokenizer, text, target.ids, one, second)
        for text, target, one, second in zip(texts, targets, found, seconds, strict=True)
    ]


def _both_directions(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], encodings: Sequence[Encoding]
) -> list[Scored]:
    """The mean of both directions, as in the training objective, and each of them."""
    ids = [one.ids.astype(np.int64) for one in encodings]
    words = [written_words(text, one.offsets) for text, one in zip(texts, encodings, strict=True)]
    forward, backward = bilm_scores(model, tokenizer, ids, words)
    out = []
    for text, own, left, right in zip(texts, ids, forward, backward, strict=True):
        one = _scored(tokenizer, text, own, mean_scores(left, right))
        out.append(replace(one, forward=float(left.logprobs.sum()), backward=float(right.logprobs.sum())))
    return out


def _continuations(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], text_b: Sequence[str], way: Way
) -> list[Scored]:
    """Each second text as what follows the first, both read as they stand."""
    both = joined(model, tokenizer, list(zip(texts, text_b, strict=True)), way)
    found = judged(model, tokenizer, [one.ids for one in both], [one.since for one in both], way=way,
                   words=[one.words for one in both])  # fmt: skip
    return [
        _scored(tokenizer, text, one.ids[one.since :], scores, second)
        for text, second, one, scores in zip(texts, text_b, both, found, strict=True)
    ]


@dataclass(frozen=True)
class Joined:
    """A context and what follows it, cut into tokens as one text."""

    ids: Ints
    words: list[bytes]
    """How each token is written."""
    since: int
    """Where the continuation begins: with the first token that reaches into it."""


def joined(model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], way: Way) -> list[Joined]:
    """Contexts and what follows each as one text; a context too long for a causal model loses its beginning."""
    out, texts = [], [context + continuation for context, continuation in pairs]
    for (context, _), text, encoding in zip(pairs, texts, tokenizer.encode_many(texts), strict=True):
        ids, words = encoding.ids.astype(np.int64), written_words(text, encoding.offsets)
        since = int(np.count_nonzero(encoding.offsets[:, 1] <= len(context)))
        over = min(since, max(0, len(ids) - model.backbone.length)) if way == "causal" else 0
        out.append(Joined(ids[over:], words[over:], since - over))
    return out


def logprobs(model: Model, tokenizer: Tokenizer, texts: Sequence[Ints], *, way: Way | None = None) -> list[Floats]:
    """The log-probability of each token of texts that are already cut into ids."""
    return [found.logprobs for found in judged(model, tokenizer, texts, [0] * len(texts), way=way)]


def judged(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Ints],
    since: Sequence[int],
    *,
    way: Way | None = None,
    orders: Sequence[Sequence[int] | None] | None = None,
    words: Sequence[Sequence[bytes]] | None = None,
) -> list[TokenScores]:
    """What the model says of each text's tokens from `since` on; those before are only read.

    `words` are how the tokens were written, for a model that reads letters. Its scores are the mean of both
    directions, but those of a continuation are forward ones: what comes before it is nothing to the backward direction.
    """
    way = way or way_for(model, "score")
    require(model, way, "this score")
    if way == "source":
        return target_scores(model, [infilling_of(model, tokenizer, *one) for one in zip(texts, since, strict=True)])
    if way == "permutation":
        return permutation_scores(model, tokenizer, texts, since, orders)
    if way == "bilm":
        forward, backward = bilm_scores(model, tokenizer, texts, words)
        return [left.since(first) if first else mean_scores(left, right)
                for left, right, first in zip(forward, backward, since, strict=True)]  # fmt: skip
    out = [TokenScores.zeros(len(ids) - first) for ids, first in zip(texts, since, strict=True)]
    rows = _causal(model, tokenizer, texts, since) if way == "causal" else _masked(model, tokenizer, texts, since)
    for group in _groups(rows):
        go_on()
        for reading, found in zip(group, _read(model, group, way), strict=True):
            out[reading.text].put(reading.first - since[reading.text], *found)
    return out


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
    most = tokens_per_pass(TOKENS)
    for row in sorted(rows, key=lambda one: len(one.row)):
        if group and (len(group) + 1) * len(row.row) > most:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


@torch.inference_mode()
def _read(model: Model, group: list[_Reading], way: Way) -> Iterator[tuple[Tensor, Tensor]]:
    """Per row the log-probabilities of what it predicts, and which are the best; logits exist only there, in chunks."""
    places = torch.cat([one.places for one in group])
    owners = torch.repeat_interleave(torch.arange(len(group)), torch.tensor([len(one.places) for one in group]))
    if way != "causal":
        states = states_at(model, [one.row for one in group], places, owners, way)
    else:  # padding comes later in the row, so that nothing sees it
        tokens = pad_sequence([one.row for one in group], batch_first=True).to(model.device)
        states = model.backbone(tokens=tokens, causal=True).at((owners * tokens.shape[1] + places).to(model.device))
    wanted = torch.cat([one.wanted for one in group]).to(model.device)
    return token_scores(vocabulary_head(model, way), states, wanted, [len(one.places) for one in group])
