"""Simulated comparisons: how often identical arms are told apart, and how often a true difference is found.

python -m benchmarks.compare_statistics [--comparisons 1000]

The table goes to docs/results/compare-statistics.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.side_by_side import RESULTS, table
from meristem.compare.statistics import LEVEL, adjust_verdicts, compare_paired, student_test

NUM_ITEMS = 400
"""Test samples of a measure that is a share of correct ones."""
KINDS = {
    "normal": "normal values",
    "heavy": "Student's t with 3 degrees of freedom",
    "share": f"shares of {NUM_ITEMS} test samples",
}


def draw_arms(kind: str, seeds: int, effect: float, rng: np.random.Generator) -> tuple[NDArray[np.float64], ...]:
    """Values of a baseline and of an arm that is better by `effect` deviations of the paired differences."""
    if kind == "share":  # both arms see the same samples; the seed makes all of them easier or harder
        difficulty = np.clip(0.7 + 0.05 * rng.standard_normal(seeds), 0.3, 0.95)
        deviation = np.sqrt(2 * 0.7 * 0.3 / NUM_ITEMS)
        better = np.clip(difficulty + effect * deviation, 0, 1)
        return rng.binomial(NUM_ITEMS, difficulty) / NUM_ITEMS, rng.binomial(NUM_ITEMS, better) / NUM_ITEMS
    noise = rng.standard_normal((2, seeds)) if kind == "normal" else rng.standard_t(3, (2, seeds)) / np.sqrt(3)
    shared = 10 * rng.standard_normal(seeds)
    baseline, arm = shared + noise / np.sqrt(2)
    return baseline, arm + effect


def simulate(kind: str, seeds: int, effect: float, measures: int, comparisons: int) -> tuple[float, float, float]:
    """Share of comparisons in which all measures cannot be told apart; share in which the first one is found to be
    better; and the first share with each test by itself at 0.05."""
    rng = np.random.default_rng(1)
    apart = found = apart_unadjusted = 0
    for _ in range(comparisons):
        drawn = [draw_arms(kind, seeds, effect, rng) for _ in range(measures)]
        paired = adjust_verdicts([compare_paired(arm, baseline, lower_is_better=False) for baseline, arm in drawn])
        apart += any(comparison.verdict != "cannot be told apart" for comparison in paired)
        found += paired[0].verdict == "better"
        apart_unadjusted += any(student_test(arm - baseline, tolerance=1e-12)[2] < 0.05 for baseline, arm in drawn)
    return 1 - apart / comparisons, found / comparisons, 1 - apart_unadjusted / comparisons


def result_rows(comparisons: int) -> Iterator[list[str]]:
    """One row for each kind of values, number of seeds and number of measures."""
    for kind, title in KINDS.items():
        for seeds in (3, 5, 8):
            for measures in (1, 4):
                same, _, unadjusted = simulate(kind, seeds, 0.0, measures, comparisons)
                found = simulate(kind, seeds, 2.0, measures, comparisons)[1]
                row = [title, str(seeds), str(measures), f"{same:.1%}", f"{unadjusted:.1%}", f"{found:.1%}"]
                print(" | ".join(row), flush=True)
                yield row


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=1000)
    options = parser.parse_args()
    header = [
        "values",
        "seeds",
        "measures",
        "identical, not told apart",
        "the same, tests at 0.05",
        "two deviations, found",
    ]
    lines = [
        "# Error rates of comparisons",
        "",
        f"`python -m benchmarks.compare_statistics --comparisons {options.comparisons}`: simulated comparisons of an",
        "arm with a baseline, paired by seed. *Identical*: the share of comparisons in which no measure is called",
        "better or worse, with the rule of `meristem compare` (p-values adjusted for all measures of the report, level",
        f"{LEVEL}), and with each test by itself at 0.05. *Found*: the share in which the first measure is called",
        "better, where all differ by two standard deviations of the paired differences.",
        "",
        table(header, list(result_rows(options.comparisons))),
        "",
        "With three seeds a difference must be far larger than two deviations to be found; the report says how many",
        "seeds it would take.",
        "",
    ]
    (RESULTS / "compare-statistics.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
