"""Samples held out and samples drawn: by seed and content alone, label by label."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from meristem.task import Sample

Key = TypeVar("Key")
Identity = Callable[[Sample], str]


def held_out(
    samples: Sequence[Sample], share: float, seed: int, identity: Identity, *, labels: bool
) -> tuple[list[Sample], list[Sample]]:
    """Those that stay and those held out, in their order; what is given twice is on one side only."""
    groups: dict[str, list[int]] = defaultdict(list)
    for at, sample in enumerate(samples):
        groups[identity(sample)].append(at)
    strata = _strata([samples[members[0]] for members in groups.values()], labels)
    counts = Counter(strata)
    ranked = sorted(zip(strata, (_number(seed, "held out", key) for key in groups), groups, strict=True))
    may = [key for stratum, _, key in ranked if counts[stratum] > 1]  # the only sample of a label is learned from
    wanted = min(max(1, round(share * len(groups))), len(may), len(groups) - 1)
    held = {at for key in _spread(may, wanted) for at in groups[key]}
    kept = [sample for at, sample in enumerate(samples) if at not in held]
    return kept, [samples[at] for at in sorted(held)]


def drawn(samples: Sequence[Sample], limit: int, seed: int, identity: Identity, *, labels: bool) -> list[Sample]:
    """So many samples in their order, one of every label first where there is room for that."""
    strata = _strata(samples, labels)
    keys = (_number(seed, "drawn", identity(sample)) for sample in samples)
    ranked = [at for _, _, at in sorted(zip(strata, keys, range(len(samples)), strict=True))]
    firsts = list({strata[at]: at for at in reversed(ranked)}.values())
    firsts = firsts if len(firsts) <= limit else []
    taken = set(firsts)
    rest = [at for at in ranked if at not in taken]
    return [samples[at] for at in sorted([*firsts, *_spread(rest, limit - len(firsts))])]


def _strata(samples: Sequence[Sample], labels: bool) -> list[str]:
    """The label of each sample, or nothing where golds are no labels, or numbers that hardly come again."""
    golds = [str(sample.gold) for sample in samples] if labels else []
    few = len(set(golds)) * 2 <= len(golds)
    return golds if golds and few else [""] * len(samples)


def _spread(ranked: Sequence[Key], count: int) -> list[Key]:
    """So many of a ranked list, evenly from its beginning to its end."""
    return [ranked[at * len(ranked) // count] for at in range(count)] if count > 0 else []


def _number(seed: int, purpose: str, key: str) -> bytes:
    return hashlib.blake2b(f"{seed}\x1d{purpose}\x1d{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
