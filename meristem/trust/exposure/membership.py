"""Membership inference by loss (Yeom et al. 2018): was a passage in the training text, judged by its log-probability?

With a reference model, that was not trained on the text, its log-probability is subtracted (Carlini et al. 2022): a
passage counts as trained on where the model knows it better than its difficulty explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meristem.checkpoint.load_run import LoadedRun
from meristem.corpus.canaries.templates import CanaryText
from meristem.dataset.token_dataset import TokenStream
from meristem.generation.head_selection import MASKED_KINDS, LMKind
from meristem.generation.token_scores import Floats
from meristem.metrics.proportion_intervals import Interval, wilson_interval
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.trust.exposure.canary_scores import score_texts
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.passages import Passage, Skipped, passage_size, sample_passages
from meristem.utils.optional_packages import require_module
from meristem.utils.randomness import generator

FALSE_POSITIVE_RATE = 0.001
MIN_PASSAGES, MIN_TOKENS = 20, 4
MAX_MASKED_TOKENS = 32
"""Tokens of a passage where each is masked once."""
MAX_CURVE_POINTS = 200
MIN_COUNT = 5
"""With fewer members found the bootstrap of a rate is too narrow, and Wilson's interval is added."""


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """How well one score tells members from held-out passages."""

    auc: float
    """Probability that a member scores above a held-out passage; 0.5 is chance."""
    auc_interval: Interval
    tpr: float
    """Share of the members found where at most 0.1 % of held-out passages are taken for members."""
    tpr_interval: Interval
    curve: tuple[tuple[float, float], ...]
    """(false positive rate, true positive rate)."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Membership inference on one source."""

    source: str
    members: int
    held_out: int
    """Passages of the training text and of held-out text."""
    passage_tokens: int
    by_loss: AttackResult
    by_reference: AttackResult | None
    """With the log-probability under the reference model subtracted."""
    reference: str | None


def measure_membership(
    loaded_run: LoadedRun,
    kind: LMKind,
    source: str,
    train: TokenStream,
    held_out: Sequence[TokenStream],
    options: ExposureOptions,
    skipped: Skipped,
    progress: Callable[[int], None],
    reference: tuple[LoadedRun, LMKind] | None = None,
) -> Membership | None:
    """Score passages of both kinds; None if there is too little held-out text."""
    max_length = loaded_run.learner.model.backbone.max_length - 4
    max_tokens = min(options.passage_tokens, max_length, MAX_MASKED_TOKENS if kind in MASKED_KINDS else max_length)
    size = passage_size(train, max_tokens, skipped)
    if size < MIN_TOKENS or train.has_pairs or not held_out:
        return None
    per_split = math.ceil(options.members / len(held_out))
    unseen = [item for stream in held_out for item in sample_passages(stream, size, per_split, seed=options.seed)]
    members = sample_passages(train, size, options.members, seed=options.seed, skipped=skipped)
    if min(len(unseen), len(members)) < MIN_PASSAGES:
        return None
    texts = _decoded([*members, *unseen], loaded_run.tokenizer)
    logprobs = score_texts(loaded_run, kind, texts, progress) / size
    by_reference = None
    if reference is not None:
        logprobs_of_reference = score_texts(*reference, texts, progress) / size
        by_reference = attack_result(logprobs - logprobs_of_reference, len(members), options)
    return Membership(
        source=source,
        members=len(members),
        held_out=len(unseen),
        passage_tokens=size,
        by_loss=attack_result(logprobs, len(members), options),
        by_reference=by_reference,
        reference=None if reference is None else str(reference[0].run.path),
    )


def _decoded(passages: Sequence[Passage], tokenizer: Tokenizer) -> list[CanaryText]:
    return [CanaryText(tokenizer.decode(passage.ids.tolist()), 0) for passage in passages]


def attack_result(scores: Floats, num_members: int, options: ExposureOptions) -> AttackResult:
    """ROC curve, area and true positive rate, with bootstrap intervals; the scores of members come first."""
    members, unseen = scores[:num_members], scores[num_members:]
    rng = generator(options.seed, "membership", 0, 0)
    resampled = np.array(
        [
            _area_and_rate(
                members[rng.integers(len(members), size=len(members))],
                unseen[rng.integers(len(unseen), size=len(unseen))],
            )
            for _ in range(options.resamples)
        ]
    )
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    auc, tpr = _area_and_rate(members, unseen)
    tpr_interval = (float(low[1]), float(high[1]))
    if tpr * len(members) < MIN_COUNT:
        wilson = wilson_interval(tpr, len(members))
        tpr_interval = (min(tpr_interval[0], wilson[0]), max(tpr_interval[1], wilson[1]))
    false_positives, true_positives = _curve(members, unseen)
    shown = np.unique(np.linspace(0, len(false_positives) - 1, MAX_CURVE_POINTS).round().astype(int))
    return AttackResult(
        auc=auc,
        auc_interval=(float(low[0]), float(high[0])),
        tpr=tpr,
        tpr_interval=tpr_interval,
        curve=tuple(zip(false_positives[shown].tolist(), true_positives[shown].tolist(), strict=True)),
    )


def _curve(members: Floats, unseen: Floats) -> tuple[Floats, Floats]:
    """False and true positive rates at every threshold."""
    metrics = require_module("sklearn.metrics", "membership inference", "metrics", package="scikit-learn")
    labels = np.concatenate([np.ones(len(members)), np.zeros(len(unseen))])
    false_positives, true_positives, _ = metrics.roc_curve(labels, np.concatenate([members, unseen]))
    return false_positives, true_positives


def _area_and_rate(members: Floats, unseen: Floats) -> tuple[float, float]:
    """Area under the ROC curve, and the true positive rate at the false positive rate.

    The same numbers as those of `_curve`, without the curve, which takes most of a thousand resamples' time.
    """
    sorted_unseen = np.sort(unseen)
    below, not_above = (np.searchsorted(sorted_unseen, members, side=side) for side in ("left", "right"))
    area = float((below + not_above).mean()) / (2 * len(unseen))
    num_allowed = math.floor(FALSE_POSITIVE_RATE * len(unseen))
    return area, float(np.mean(members > sorted_unseen[-1 - num_allowed]))
