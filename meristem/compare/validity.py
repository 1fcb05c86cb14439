"""Validity checks of a comparison: what makes its numbers prove nothing, each with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint.run_folder import RunFolder
from meristem.compare.comparison_settings import BudgetSettings
from meristem.compare.measures import RunMeasures
from meristem.dataset.prepare import cache_dir
from meristem.dataset.token_dataset import TokenDataset, TokenStream

BUDGET_TOLERANCE = 0.01
MIN_BUDGET_SHARE = 0.9
"""A run that used less of its budget was cut short; a run ends with a whole step, so that short ones miss a little."""
UNIFORM_SHARE = 0.98
"""A loss above this share of log(vocabulary size) is that of guessing."""
MAX_TOKENS = 2_000_000
"""Tokens of each split that the n-gram model, the divergence and the leaks are computed from."""
MAX_DIVERGENCE_RATIO = 3.0
"""Unigram divergence of validation from training text, relative to that of halves of the training text."""
MIN_DIVERGENCE = 0.02
"""Nats; a smaller divergence is never a bad split."""
LEAK_TOKENS = 24
"""Tokens of the windows whose copies in the training text count as leaks."""
MAX_LEAK_SHARE = 0.01
DISCOUNT = 0.75
"""Absolute discount of the n-gram model (Ney, Essen and Kneser 1994)."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a comparison, or some of its arms, cannot be trusted."""

    check: str
    arms: tuple[str, ...]
    """The arms concerned; empty for the data of all."""
    message: str
    remedy: str


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


def find_problems(
    budget: BudgetSettings,
    runs: Mapping[str, Sequence[RunMeasures]],
    missing: Mapping[str, int],
    statistics: Mapping[str, SplitStatistics],
) -> list[Problem]:
    """All problems of the pretraining runs: arm → finished runs, unfinished runs, and statistics of its splits."""
    return [
        *_unfinished(missing),
        *_unequal_budgets(budget, runs),
        *(problem for arm, measures in runs.items() for problem in _arm_problems(arm, measures, statistics.get(arm))),
        *_split_problems(statistics),
    ]


def _unfinished(missing: Mapping[str, int]) -> Iterator[Problem]:
    for arm, count in missing.items():
        if count:
            yield Problem(
                check="unfinished runs", arms=(arm,), message=f"{arm}: {count} runs have not finished",
                remedy="run the same command again; the log of a failed run is in its folder in cells",
            )  # fmt: skip


def _unequal_budgets(budget: BudgetSettings, runs: Mapping[str, Sequence[RunMeasures]]) -> Iterator[Problem]:
    """Arms whose runs used another amount of what should be equal."""
    used = {arm: [measures.used[budget.kind] for measures in of_arm] for arm, of_arm in runs.items() if of_arm}
    amounts = [amount for of_arm in used.values() for amount in of_arm]
    if amounts and min(amounts) < (1 - BUDGET_TOLERANCE) * max(amounts):
        listed = ", ".join(f"{arm} {np.mean(of_arm):.4g}" for arm, of_arm in used.items())
        yield Problem(
            check="unequal budget", arms=tuple(used),
            message=f"{budget.kind} used differ by more than 1 %: {listed}",
            remedy=f"hold {budget.kind} equal with a larger budget or smaller batches (a run ends with a whole step)",
        )  # fmt: skip
    for arm, of_arm in used.items():
        if min(of_arm) < MIN_BUDGET_SHARE * budget.amount:
            yield Problem(
                check="cut short", arms=(arm,),
                message=f"{arm} used {min(of_arm):.4g} of {budget.amount:.4g} {budget.kind}",
                remedy="look for early stopping (train.patience) and skipped steps in its log",
            )  # fmt: skip


def _arm_problems(arm: str, runs: Sequence[RunMeasures], statistics: SplitStatistics | None) -> Iterator[Problem]:
    losses = [measures.values["loss"] for measures in runs if "loss" in measures.values]
    if any(not math.isfinite(loss) for loss in losses) or any(_rose(measures) for measures in runs):
        yield Problem(
            check="diverged", arms=(arm,), message=f"{arm}: its validation loss rose or is not a number",
            remedy="lower its train.learning_rate, or tune it with --learning-rates 0.25,0.5,1",
        )  # fmt: skip
    if any(_stopped_learning_at_once(measures) for measures in runs):
        yield Problem(
            check="first evaluation is the best", arms=(arm,),
            message=f"{arm}: no later evaluation is better than its first",
            remedy="the run overfits or its learning rate is wrong: give it more text, or tune the learning rate",
        )  # fmt: skip
    if statistics is None:
        return
    uniform = UNIFORM_SHARE * math.log(statistics.vocab_size)
    for measures in runs:
        if "perplexity" not in measures.values:
            continue
        loss = measures.values.get("mlm", measures.values["loss"])
        if loss >= uniform:
            yield Problem(
                check="uniform loss", arms=(arm,), message=f"{arm}: loss {loss:.3f} is that of guessing at random",
                remedy="the run is broken or far too short: raise the budget, or look at its log",
            )  # fmt: skip
            return
        anchor = statistics.bigram_loss if "bits_per_byte" in measures.values else statistics.unigram_loss
        if loss >= anchor:
            kind = "bigram" if "bits_per_byte" in measures.values else "unigram"
            yield Problem(
                check="n-gram anchor", arms=(arm,),
                message=f"{arm}: loss {loss:.3f} is not below {anchor:.3f}, that of a {kind} model of the same text",
                remedy="a model that does not beat counted n-grams has learned too little: raise the budget",
            )  # fmt: skip
            return


def _rose(measures: RunMeasures) -> bool:
    """Whether the last validation loss is clearly above the lowest."""
    losses = [point["loss"] for point in measures.curve]
    return len(losses) > 1 and (not math.isfinite(losses[-1]) or losses[-1] > 1.2 * min(losses))


def _stopped_learning_at_once(measures: RunMeasures) -> bool:
    losses = [point["loss"] for point in measures.curve]
    return len(losses) > 2 and min(losses) == losses[0]


def _split_problems(statistics: Mapping[str, SplitStatistics]) -> Iterator[Problem]:
    """Problems of the text itself, from the first arm whose tokens were examined."""
    for split in islice(statistics.values(), 1):
        if split.divergence > max(MIN_DIVERGENCE, MAX_DIVERGENCE_RATIO * split.half_divergence):
            yield Problem(
                check="validation text differs", arms=(),
                message=f"its unigrams diverge from the training text by {split.divergence:.3f} nats, halves of the "
                f"training text from each other by {split.half_divergence:.3f}",
                remedy="let documents of all parts be drawn for validation: one file per source, or corpus.validation",
            )  # fmt: skip
        if split.leak_share > MAX_LEAK_SHARE:
            yield Problem(
                check="leak between splits", arms=(),
                message=f"{split.leak_share:.1%} of the validation text stands in the training text too",
                remedy="remove near duplicates: corpus.near_dedup=true",
            )  # fmt: skip
