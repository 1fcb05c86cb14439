"""A comparison report with made-up values: four arms, a task by number of labels, and arms that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meristem.compare.comparison_report import ArmResult, ComparisonReport, MeasureResult
from meristem.compare.comparison_settings import build_comparison
from meristem.compare.measures import Measure
from meristem.compare.statistics import adjust_verdicts, compare_paired
from meristem.compare.validity import Problem

ARMS = ["masked <15 %>", "masked 40 %", "electra", "gpt2"]
SEEDS = 5


def example_report(
    problems: Sequence[Problem] = (), *, effects: Mapping[str, list[float]] | None = None, seeds: int = SEEDS
) -> ComparisonReport:
    """ "masked 40 %" is better on reviews, "gpt2" worse; "electra" cannot be told apart. `effects` changes that."""
    rng = np.random.default_rng(0)
    recipes = {arm: {"recipe": "gpt2-mini" if arm == "gpt2" else "roberta-mini"} for arm in ARMS}
    comparison = build_comparison(
        {"arms": recipes, "source": "my-texts/", "seeds": seeds, "tasks": [{"data": "reviews.tsv", "labels": [100]}]}
    )
    values: dict[str, Any] = {
        "loss": (3.0, True, [0, 0, 0, 0]),
        "reviews-100": (0.7, False, [0, 0.1, 0, -0.1]),
        "reviews": (0.8, False, [0, 0.1, 0, -0.1]),
    }
    measures = []
    for name, (mean, lower_is_better, usual) in values.items():
        measure = Measure(
            name=name, metric="accuracy", lower_is_better=lower_is_better, same_objective_only=name == "loss"
        )
        of_seeds = rng.normal(mean, 0.05, seeds)
        of_arms = [
            list(of_seeds + effect + rng.normal(0, 0.01 if effect else 0.0, seeds))
            for effect in (effects or {}).get(name, usual)
        ]
        paired = [compare_paired(of_arm, of_arms[0], lower_is_better=lower_is_better) for of_arm in of_arms[1:]]
        comparisons = [None, *adjust_verdicts(paired)]
        results = [
            ArmResult(arm=arm, values=dict(enumerate(of_arm)), comparison=compared)
            for arm, of_arm, compared in zip(ARMS, of_arms, comparisons, strict=True)
        ]
        measures.append(MeasureResult(measure=measure, arms=results))
    return ComparisonReport(
        settings=comparison,
        problems=problems,
        measures=measures,
        costs={arm: {"steps": 1200.0, "tokens": 5e6, "flops": 1e14, "minutes": 6.0 + number,
                     "tokens_per_second": 12_000.0, "memory": 8e8} for number, arm in enumerate(ARMS)},
        curves={arm: [{"steps": float(step), "tokens": step * 4096.0, "flops": step * 8e10, "minutes": step / 200,
                       "loss": 3 + 1000 / step} for step in range(100, 1300, 100)] for arm in ARMS},
        tokenizers=dict.fromkeys(ARMS, ""),
        learning_rates={ARMS[0]: 0.5},
        differences={arm: {} if arm == ARMS[0] else {"objective": arm} for arm in ARMS},
    )  # fmt: skip
