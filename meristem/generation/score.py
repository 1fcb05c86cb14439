"""Log-probability of texts, and of targets or continuations given a source (docs/using.md).

Causal: log p(x) = Σ log p(x_t | separator, x_<t), the text as the beginning of a document. A text longer than the
model is read in windows that overlap by half: every token but the first ones has at least half a window of context.
Permutation (XLNet): exact in a given order. Bidirectional LSTM (ELMo): forward and backward, and their mean.
Masked, and ELECTRA's generator: the pseudo-log-likelihood Σ log p(x_t | all others), each token masked once (Salazar
et al. 2020), in a window around it if need be. Encoder-decoders: a target given its source; a denoising one also
scores a text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.config.errors import MeristemError
from meristem.dataset.length_buckets import length_batches
from meristem.dataset.token_dataset import IntArray
from meristem.generation.bilm import bilm_scores, mean_scores
from meristem.generation.cancellation import check_cancelled, max_tokens_per_pass
from meristem.generation.generation_inputs import Prompt, input_template
from meristem.generation.head_selection import LMKind, lm_kind_for, require_lm_kind, text_lm_kinds, vocabulary_head
from meristem.generation.masked_input import hidden_states_at, mask_id
from meristem.generation.permutation import permutation_scores
from meristem.generation.target_score import build_infilling_target, build_target, score_targets
from meristem.generation.token_scores import (
    MAX_TOKENS_PER_PASS,
    Floats,
    TokenScores,
    overlapping_windows,
    score_token_rows,
)
from meristem.inputs.char_ids import surface_forms
from meristem.inputs.template import separator_id
from meristem.interfaces.backbone import Model
from meristem.learning.inference_options import forward_precision, head_precision
from meristem.tokenizers.tokenizer import Encoding, Tokenizer
from meristem.utils.result_tables import Tabular


@dataclass(frozen=True, kw_only=True)
class TextScore(Tabular):
    """The log-probability of a text and of each of its tokens."""

    text: str
    """The scored text; with `text_b` the source or context."""
    logprob: float
    """Natural logarithm, summed over the tokens."""
    tokens: int
    per_token: tuple[tuple[str, float], ...]
    text_b: str | None = None
    """The target or continuation whose log-probability this is."""
    forward: float | None = None
    backward: float | None = None
    """For a bidirectional LSTM, the log-probability in each direction; `logprob` is their mean."""


def score(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Prompt],
    *,
    text_b: Sequence[str] | None = None,
    order: Sequence[int] | None = None,
    lm_kind: LMKind | None = None,
) -> list[TextScore]:
    """The log-probability of each text, or of each `text_b` given its text (or image); 0 for a text without tokens.

    `order` is a permutation model's factorisation order: token indices of the text, first predicted first.
    """
    has_images = not all(isinstance(item, str) for item in texts)
    has_source = text_b is not None and "source" in text_lm_kinds(model)
    lm_kind = lm_kind or lm_kind_for(model, "score", source=has_images or has_source)
    if order is not None and lm_kind != "permutation":
        raise MeristemError(f"order: only a permutation model (objective=plm, xlnet) takes one; this one is {lm_kind}")
    if text_b is not None and len(text_b) != len(texts):
        raise MeristemError(f"text_b: {len(texts)} texts need as many second texts, got {len(text_b)}")
    if lm_kind == "source":
        return _score_targets(model, tokenizer, texts, text_b)
    strings = [item for item in texts if isinstance(item, str)]
    if len(strings) < len(texts):
        raise MeristemError(f"this {type(model.backbone).__name__} has no image encoder; give a text")
    if text_b is not None:
        return _score_continuations(model, tokenizer, strings, text_b, lm_kind)
    if lm_kind == "bilm":
        return _score_both_directions(model, tokenizer, strings, tokenizer.encode_batch(strings))
    ids = [item.astype(np.int64) for item in tokenizer.ids_each(strings)]
    token_scores = score_tokens(
        model, tokenizer, ids, [0] * len(ids), lm_kind=lm_kind, orders=None if order is None else [order] * len(ids)
    )
    return [_text_score(tokenizer, *text_scores) for text_scores in zip(strings, ids, token_scores, strict=True)]


def _text_score(
    tokenizer: Tokenizer, text: Prompt, ids: IntArray, token_scores: TokenScores, text_b: str | None = None
) -> TextScore:
    pieces = tokenizer.token_texts(ids)
    source_text = text if isinstance(text, str) else ""
    return TextScore(
        text=source_text,
        text_b=text_b,
        logprob=float(token_scores.logprobs.sum()),
        tokens=len(ids),
        per_token=tuple(zip(pieces, token_scores.logprobs.tolist(), strict=True)),
    )


def _score_targets(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Prompt], text_b: Sequence[str] | None
) -> list[TextScore]:
    """Targets given their sources, end tokens included; a text alone is scored by infilling."""
    if text_b is None:
        encodings = tokenizer.encode_batch([str(text) for text in texts])
        targets = [build_infilling_target(model, tokenizer, item.ids.astype(np.int64)) for item in encodings]
    else:
        targets = [build_target(model, tokenizer, *pair) for pair in zip(texts, text_b, strict=True)]
    second_texts: Sequence[str | None] = text_b or [None] * len(texts)
    token_scores = score_targets(model, targets)
    return [
        _text_score(tokenizer, text, target.ids, item, second)
        for text, target, item, second in zip(texts, targets, token_scores, second_texts, strict=True)
    ]


def _score_both_directions(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], encodings: Sequence[Encoding]
) -> list[TextScore]:
    """The mean of both directions, as in the training objective, and each of them."""
    ids = [item.ids.astype(np.int64) for item in encodings]
    words = [surface_forms(text, item.offsets) for text, item in zip(texts, encodings, strict=True)]
    forward, backward = bilm_scores(model, tokenizer, ids, words)
    text_scores = []
    for text, text_ids, forward_scores, backward_scores in zip(texts, ids, forward, backward, strict=True):
        item = _text_score(tokenizer, text, text_ids, mean_scores(forward_scores, backward_scores))
        text_scores.append(
            replace(item, forward=float(forward_scores.logprobs.sum()), backward=float(backward_scores.logprobs.sum()))
        )
    return text_scores


def _score_continuations(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], text_b: Sequence[str], lm_kind: LMKind
) -> list[TextScore]:
    """Each second text as the continuation of the first."""
    pairs = list(zip(texts, text_b, strict=True))
    return [
        _text_score(tokenizer, text, pair.ids[pair.continuation_start :], scores, second)
        for (text, second), (pair, scores) in zip(
            pairs, score_encoded_pairs(model, tokenizer, pairs, lm_kind), strict=True
        )
    ]


def score_encoded_pairs(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], lm_kind: LMKind
) -> Iterator[tuple[ContextContinuation, TokenScores]]:
    """Each (context, continuation) pair as one tokenized text, and the scores of the continuation's tokens."""
    encoded_pairs = encode_continuations(model, tokenizer, pairs, lm_kind)
    scores = score_tokens(
        model,
        tokenizer,
        [pair.ids for pair in encoded_pairs],
        [pair.continuation_start for pair in encoded_pairs],
        lm_kind=lm_kind,
        token_bytes=[pair.token_bytes for pair in encoded_pairs],
    )
    return zip(encoded_pairs, scores, strict=True)


@dataclass(frozen=True)
class ContextContinuation:
    """A context and its continuation, tokenized as one text."""

    ids: IntArray
    token_bytes: list[bytes]
    """The surface form of each token."""
    continuation_start: int
    """Index of the first token of the continuation: the first that overlaps it."""


def encode_continuations(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], lm_kind: LMKind
) -> list[ContextContinuation]:
    """Context and continuation as one text; a context too long for a causal model is truncated at its beginning."""
    encoded_pairs, texts = [], [context + continuation for context, continuation in pairs]
    for (context, _), text, encoding in zip(pairs, texts, tokenizer.encode_batch(texts), strict=True):
        ids, token_bytes = encoding.ids.astype(np.int64), surface_forms(text, encoding.offsets)
        continuation_start = int(np.count_nonzero(encoding.offsets[:, 1] <= len(context)))
        num_cut = min(continuation_start, max(0, len(ids) - model.backbone.max_length)) if lm_kind == "causal" else 0
        encoded_pairs.append(ContextContinuation(ids[num_cut:], token_bytes[num_cut:], continuation_start - num_cut))
    return encoded_pairs


def token_logprobs(
    model: Model, tokenizer: Tokenizer, texts: Sequence[IntArray], *, lm_kind: LMKind | None = None
) -> list[Floats]:
    """The log-probability of each token of tokenized texts."""
    return [
        token_scores.logprobs
        for token_scores in score_tokens(model, tokenizer, texts, [0] * len(texts), lm_kind=lm_kind)
    ]


def score_tokens(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[IntArray],
    first_scored: Sequence[int],
    *,
    lm_kind: LMKind | None = None,
    orders: Sequence[Sequence[int] | None] | None = None,
    token_bytes: Sequence[Sequence[bytes]] | None = None,
) -> list[TokenScores]:
    """Scores of each text's tokens from `first_scored` on; those before are context only.

    `token_bytes` are the surface forms of the tokens, for character-based models (ELMo). Their scores are the mean of
    both directions, but for a continuation forward ones: the backward direction does not see the context before it.
    """
    lm_kind = lm_kind or lm_kind_for(model, "score")
    require_lm_kind(model, lm_kind, "this score")
    if lm_kind == "source":
        return score_targets(
            model, [build_infilling_target(model, tokenizer, *item) for item in zip(texts, first_scored, strict=True)]
        )
    if lm_kind == "permutation":
        return permutation_scores(model, tokenizer, texts, first_scored, orders)
    if lm_kind == "bilm":
        forward, backward = bilm_scores(model, tokenizer, texts, token_bytes)
        return [
            forward_scores.from_index(start) if start else mean_scores(forward_scores, backward_scores)
            for forward_scores, backward_scores, start in zip(forward, backward, first_scored, strict=True)
        ]
    scores = [TokenScores.zeros(len(ids) - start) for ids, start in zip(texts, first_scored, strict=True)]
    rows = (
        _causal_rows(model, tokenizer, texts, first_scored)
        if lm_kind == "causal"
        else _masked_rows(model, tokenizer, texts, first_scored, lm_kind)
    )
    with forward_precision(model, sum(map(len, texts))):
        for batch in _length_sorted_batches(rows):
            check_cancelled()
            for row, row_scores in zip(batch, _score_batch(model, batch, lm_kind), strict=True):
                scores[row.text_index].put(row.text_start - first_scored[row.text_index], *row_scores)
    return scores


@dataclass(frozen=True)
class _ScoringRow:
    """One input row, some positions of which predict tokens of one text."""

    text_index: int
    row: Tensor
    positions: Tensor
    """Positions in the row of the predictions."""
    target_ids: Tensor
    """The tokens predicted there."""
    text_start: int
    """Index in the text of the first predicted token."""


def _causal_rows(
    model: Model, tokenizer: Tokenizer, texts: Sequence[IntArray], first_scored: Sequence[int]
) -> Iterator[_ScoringRow]:
    """Windows that overlap by half; each token is predicted in the first that contains it."""
    start_ids = input_template(model, tokenizer, "causal").prompt_start_ids or (separator_id(tokenizer),)
    shift = len(start_ids) - 1  # position t predicts token t - shift of the text
    for text_index, ids in enumerate(texts):
        full_ids = np.concatenate([start_ids, ids])
        windows = overlapping_windows(len(full_ids) - 1, model.backbone.max_length, first_scored[text_index] + shift)
        for start, stop, first in windows:
            yield _ScoringRow(
                text_index,
                torch.from_numpy(full_ids[start:stop]),
                torch.arange(first - start, stop - start),
                torch.from_numpy(full_ids[first + 1 : stop + 1]),
                first - shift,
            )


def _masked_rows(
    model: Model, tokenizer: Tokenizer, texts: Sequence[IntArray], first_scored: Sequence[int], lm_kind: LMKind
) -> Iterator[_ScoringRow]:
    """One row per token, in which it is masked."""
    template, mask_token_id = input_template(model, tokenizer, lm_kind), mask_id(tokenizer)
    for text_index, ids in enumerate(texts):
        for index in range(first_scored[text_index], len(ids)):
            start, stop = template.window_around(len(ids), index)
            row = torch.from_numpy(template.add_special_tokens(ids[start:stop]))
            position = index - start + len(template.prefix_ids)
            row[position] = mask_token_id
            yield _ScoringRow(
                text_index, row, torch.tensor([position]), torch.from_numpy(ids[index : index + 1]), index
            )


def _length_sorted_batches(rows: Iterator[_ScoringRow]) -> Iterator[list[_ScoringRow]]:
    """Batches of rows of similar length, sorted within a horizon so that memory stays constant."""
    horizon: list[_ScoringRow] = []
    num_waiting = 0
    for row in rows:
        horizon.append(row)
        num_waiting += len(row.row)
        if num_waiting >= 16 * MAX_TOKENS_PER_PASS:
            yield from _split_batches(horizon)
            horizon, num_waiting = [], 0
    yield from _split_batches(horizon)


def _split_batches(rows: list[_ScoringRow]) -> Iterator[list[_ScoringRow]]:
    sizes = [len(row.row) for row in rows]
    for indices in length_batches(sizes, max_tokens=max_tokens_per_pass(MAX_TOKENS_PER_PASS)):
        yield [rows[index] for index in indices]


@torch.inference_mode()
def _score_batch(model: Model, batch: list[_ScoringRow], lm_kind: LMKind) -> Iterator[tuple[Tensor, Tensor]]:
    """Per row the log-probabilities of its targets and whether each is the top token; logits are computed in chunks."""
    positions = torch.cat([row.positions for row in batch])
    row_indices = torch.repeat_interleave(torch.arange(len(batch)), torch.tensor([len(row.positions) for row in batch]))
    if lm_kind != "causal":
        states = hidden_states_at(model, [row.row for row in batch], positions, row_indices, lm_kind)
    else:  # padding comes after the text, so that causal attention never sees it
        tokens = pad_sequence([row.row for row in batch], batch_first=True).to(model.device)
        states = model.backbone(tokens=tokens, causal=True).select(
            (row_indices * tokens.shape[1] + positions).to(model.device)
        )
    target_ids = torch.cat([row.target_ids for row in batch]).to(model.device)
    sizes = [len(row.positions) for row in batch]
    with head_precision(model):
        return score_token_rows(vocabulary_head(model, lm_kind), states.float(), target_ids, sizes)
