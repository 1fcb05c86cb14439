"""Statistics of training and validation tokens: n-gram losses, divergence, and copied windows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint.run_folder import RunFolder
from meristem.dataset.prepare import cache_dir
from meristem.dataset.token_dataset import TokenDataset, TokenStream

MAX_TOKENS = 2_000_000
"""Tokens of each split that the n-gram model, the divergence and the leaks are computed from."""
LEAK_TOKENS = 24
"""Tokens of the windows whose copies in the training text count as leaks."""
DISCOUNT = 0.75
"""Absolute discount of the n-gram model (Ney, Essen and Kneser 1994)."""


@dataclass(frozen=True, kw_only=True)
class SplitStatistics:
    """What the training and validation tokens of a run say before any model."""

    vocab_size: int
    bigram_loss: float
    """Nats per validation token of an interpolated bigram model of the training tokens."""
    unigram_loss: float
    divergence: float
    """Kullback–Leibler divergence of the validation unigrams from those of the training text."""
    half_divergence: float
    """The same between two random halves of the training documents, at the size of the validation text."""
    leak_share: float
    """Share of validation windows that stand in the training text."""


def split_statistics(run: Path) -> SplitStatistics | None:
    """Statistics of the shards a run reads; None for pairs and images, or without validation text."""
    keys = list(RunFolder(run).shard_keys().values())
    if len(keys) != 1:
        return None
    key, _, state = keys[0].partition("@")
    dataset = TokenDataset.open(cache_dir() / "stores" / key, verify=False, state=state)
    if not {"train", "validation"} <= set(dataset.splits):
        return None
    return compute_split_statistics(*(dataset.split(name) for name in ("train", "validation")))


def compute_split_statistics(train_stream: TokenStream, validation_stream: TokenStream) -> SplitStatistics:
    """Statistics of two streams of tokens."""
    train, validation = (stream.tokens(0, min(len(stream), MAX_TOKENS)) for stream in (train_stream, validation_stream))
    vocab_size = int(max(train.max(), validation.max())) + 1
    unigrams = np.bincount(train, minlength=vocab_size)
    smoothed = (unigrams + 0.5) / (unigrams.sum() + 0.5 * vocab_size)
    halves = _split_halves(train_stream, len(validation))
    return SplitStatistics(
        vocab_size=vocab_size,
        bigram_loss=bigram_loss(train, validation, smoothed),
        unigram_loss=float(-np.log(smoothed[validation]).mean()),
        divergence=_divergence(np.bincount(validation, minlength=vocab_size), unigrams),
        half_divergence=_divergence(*(np.bincount(half, minlength=vocab_size) for half in halves)),
        leak_share=_leak_share(train, validation),
    )


def bigram_loss(train: NDArray[np.int64], validation: NDArray[np.int64], unigram: NDArray[np.float64]) -> float:
    """Nats per token of a bigram model with absolute discounting, interpolated with the unigram distribution."""
    size = len(unigram)
    pairs, counts = np.unique(train[:-1] * size + train[1:], return_counts=True)
    contexts = pairs // size
    context_counts = np.bincount(contexts, weights=counts, minlength=size)
    num_followers = np.bincount(contexts, minlength=size)
    validation_pairs = validation[:-1] * size + validation[1:]
    position = np.searchsorted(pairs, validation_pairs).clip(max=len(pairs) - 1)
    count = np.where(pairs[position] == validation_pairs, counts[position], 0)
    context = validation[:-1]
    total = np.maximum(context_counts[context], 1)
    backoff = np.where(context_counts[context] > 0, DISCOUNT * num_followers[context] / total, 1.0)
    probability = np.maximum(count - DISCOUNT, 0) / total + backoff * unigram[validation[1:]]
    return float(-np.log(probability).mean())


def _split_halves(stream: TokenStream, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Odd and even documents of the training text; the first half at most `size` tokens, as the validation text."""
    tokens: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for number in islice(range(stream.documents), 20_000):
        span = stream.document(number)
        tokens[number % 2].append(stream.tokens(span.start, span.stop))
    first, second = (np.concatenate(half) if half else np.zeros(0, np.int64) for half in tokens)
    return first[:size], second


def _divergence(sample: NDArray[np.int64], reference: NDArray[np.int64]) -> float:
    """KL(sample ‖ reference) in nats; the reference is smoothed."""
    if not sample.sum() or not reference.sum():
        return 0.0
    p = sample / sample.sum()
    q = (reference + 0.5) / (reference.sum() + 0.5 * len(reference))
    present = p > 0
    return float((p[present] * np.log(p[present] / q[present])).sum())


def _leak_share(train: NDArray[np.int64], validation: NDArray[np.int64]) -> float:
    """Share of consecutive validation windows that stand anywhere in the training tokens."""
    num_windows = len(validation) // LEAK_TOKENS
    if not num_windows or len(train) < LEAK_TOKENS:
        return 0.0
    windows = validation[: num_windows * LEAK_TOKENS].reshape(num_windows, LEAK_TOKENS)
    factors = np.random.default_rng(0).integers(1, 1 << 62, LEAK_TOKENS, dtype=np.int64) | 1
    with np.errstate(over="ignore"):
        hashes = np.zeros(len(train) - LEAK_TOKENS + 1, np.int64)
        for offset, factor in enumerate(factors):
            hashes += train[offset : offset + len(hashes)] * factor
        return float(np.isin(windows @ factors, hashes).mean())
