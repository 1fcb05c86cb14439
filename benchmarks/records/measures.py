"""Minimal pairs of the record table: a development half of every paradigm for choosing recipes, a test half for the
end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.records.tracks import Track, pairs_path
from meristem import api
from meristem.evaluation.minimal_pairs import MinimalPair, PairCounts, evaluate_pairs, limit_per_paradigm, read_pairs

Half = Literal["development", "test"]


def select_half(pairs: Sequence[MinimalPair], half: Half) -> list[MinimalPair]:
    """Every second pair of each paradigm: the first, third, … for development, the others for the test."""
    seen: Counter[str] = Counter()
    selected = []
    for pair in pairs:
        if (seen[pair.paradigm] % 2 == 0) == (half == "development"):
            selected.append(pair)
        seen[pair.paradigm] += 1
    return selected


def measure_pairs(run: Path, track: Track, data: Path, half: Half, limit: int | None) -> dict[str, Any]:
    """Mean accuracy over the paradigms of each suite, by both rules for ties, and the accuracy of each phenomenon."""
    loaded = api.load(run)
    results = {}
    for suite, name in track.pairs.items():
        pairs = limit_per_paradigm(select_half(read_pairs(pairs_path(data, name)), half), limit)
        counts = evaluate_pairs(loaded.model, loaded.tokenizer, pairs)
        paradigms = list(counts.paradigms.values())
        results[suite] = {
            "pairs": len(pairs),
            "accuracy": _mean([counts.accuracy for counts in paradigms]),
            "accuracy_ties_half": _mean([with_half_ties(counts) for counts in paradigms]),
            "phenomena": {name: phenomenon.accuracy for name, phenomenon in counts.phenomena.items()},
        }
    return results


def with_half_ties(counts: PairCounts) -> float:
    """Accuracy where a tie counts as half correct, as guessing would."""
    return (counts.correct + counts.ties / 2) / counts.pairs


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
