"""Validation split and subsampling: stratified by label, determined by seed and content alone."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from meristem.interfaces.sample import Sample

Key = TypeVar("Key")
DedupKey = Callable[[Sample], str]


def split_holdout(
    samples: Sequence[Sample], fraction: float, seed: int, dedup_key: DedupKey, *, stratify: bool
) -> tuple[list[Sample], list[Sample]]:
    """Training and held-out samples, each in file order; duplicates are all on one side of the split."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(samples):
        groups[dedup_key(sample)].append(index)
    strata = _strata([samples[members[0]] for members in groups.values()], stratify)
    counts = Counter(strata)
    ranked_groups = sorted(zip(strata, (_hash_key(seed, "held out", key) for key in groups), groups, strict=True))
    # the only sample of a label stays in training
    eligible_keys = [key for stratum, _, key in ranked_groups if counts[stratum] > 1]
    holdout_size = min(max(1, round(fraction * len(groups))), len(eligible_keys), len(groups) - 1)
    holdout_indices = {index for key in _pick_evenly(eligible_keys, holdout_size) for index in groups[key]}
    remaining = [sample for index, sample in enumerate(samples) if index not in holdout_indices]
    return remaining, [samples[index] for index in sorted(holdout_indices)]


def draw_subset(
    samples: Sequence[Sample], limit: int, seed: int, dedup_key: DedupKey, *, stratify: bool
) -> list[Sample]:
    """`limit` samples in file order; includes every label if there are no more labels than that."""
    strata = _strata(samples, stratify)
    keys = (_hash_key(seed, "drawn", dedup_key(sample)) for sample in samples)
    ranked = [index for _, _, index in sorted(zip(strata, keys, range(len(samples)), strict=True))]
    first_per_stratum = list({strata[index]: index for index in reversed(ranked)}.values())
    first_per_stratum = first_per_stratum if len(first_per_stratum) <= limit else []
    first_indices = set(first_per_stratum)
    rest = [index for index in ranked if index not in first_indices]
    return [
        samples[index] for index in sorted([*first_per_stratum, *_pick_evenly(rest, limit - len(first_per_stratum))])
    ]


def _strata(samples: Sequence[Sample], stratify: bool) -> list[str]:
    """The label of each sample; "" for all if golds are not labels, or are numbers that rarely repeat."""
    golds = [str(sample.gold) for sample in samples] if stratify else []
    labels_repeat = len(set(golds)) * 2 <= len(golds)
    return golds if golds and labels_repeat else [""] * len(samples)


def _pick_evenly(ranked: Sequence[Key], count: int) -> list[Key]:
    """`count` items, evenly spaced over a ranked list."""
    return [ranked[index * len(ranked) // count] for index in range(count)] if count > 0 else []


def _hash_key(seed: int, purpose: str, key: str) -> bytes:
    return hashlib.blake2b(f"{seed}\x1d{purpose}\x1d{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
