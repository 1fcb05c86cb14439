"""Results of claims: the expected differences with their intervals, and verdicts by p-values adjusted over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from meristem.compare.cells import Cell, measure_name, pretrain_cells, task_cells, trial_cells
from meristem.compare.claim_settings import ClaimSettings, ContrastSettings, ExpectationSettings
from meristem.compare.comparison_report import ComparisonReport
from meristem.compare.comparison_settings import ComparisonSettings
from meristem.compare.item_scores import read_item_scores
from meristem.compare.measures import LOWER_IS_BETTER, main_metric, read_run, score_pairs
from meristem.compare.statistics import LEVEL, PairedComparison, benjamini_hochberg, compare_paired
from meristem.compare.train_cell import is_finished, run_path
from meristem.config.errors import RecipeError

ClaimVerdict = Literal["holds", "does not hold", "cannot be told apart", "not decided"]


@dataclass(frozen=True, kw_only=True)
class MeasuredComparison:
    """A comparison of a claim that has been run."""

    settings: ComparisonSettings
    out: Path
    report: ComparisonReport


@dataclass(frozen=True, kw_only=True)
class ExpectationResult:
    """What was measured of one expectation."""

    says: str
    better_mean: float | None
    than_mean: float | None
    """Means of the two arms over seeds; of the first contrast where there are two."""
    difference: PairedComparison
    """Positive as the claim says."""
    obstacles: tuple[str, ...]
    """Failed validity checks of its comparisons."""
    adjusted_p: float | None = None
    """Adjusted over the expectations of all claims of the report (Benjamini and Hochberg)."""

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the expectation holds, by the adjusted p-value."""
        mean, p_value = self.difference.mean_difference, self.adjusted_p
        if self.obstacles or p_value is None or mean is None:
            return "not decided"
        if p_value >= LEVEL:
            return "cannot be told apart"
        return "holds" if mean > 0 else "does not hold"


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """A claim, what was measured of it, and what that cost."""

    name: str
    claim: ClaimSettings
    expectations: Sequence[ExpectationResult]
    seeds: int
    budgets: Mapping[str, str]
    """Comparison → what each run was allowed."""
    minutes: float
    flops: float

    @property
    def verdict(self) -> ClaimVerdict:
        """Of the whole claim: it holds if all its expectations do, and not if one of them does not."""
        verdicts = {expectation.verdict for expectation in self.expectations}
        for verdict in ("does not hold", "not decided", "cannot be told apart"):
            if verdict in verdicts:
                return verdict
        return "holds"


def measure_claim(name: str, claim: ClaimSettings, measured: Mapping[str, MeasuredComparison]) -> ClaimResult:
    """The results of a claim whose comparisons have been run, before p-values are adjusted."""
    used = [_used(comparison) for comparison in measured.values()]
    return ClaimResult(
        name=name,
        claim=claim,
        expectations=[_measure_expectation(expectation, measured) for expectation in claim.expected],
        seeds=max(comparison.settings.seeds for comparison in measured.values()),
        budgets={
            key: f"{comparison.settings.budget.amount:.3g} {comparison.settings.budget.kind}"
            for key, comparison in measured.items()
            if any(arm.recipe is not None for arm in comparison.settings.arms.values())
        },
        minutes=sum(minutes for minutes, _ in used),
        flops=sum(flops for _, flops in used),
    )


def _measure_expectation(
    expectation: ExpectationSettings, measured: Mapping[str, MeasuredComparison]
) -> ExpectationResult:
    contrasts = expectation.contrasts
    sides = [_contrast_values(contrast, measured[contrast.comparison]) for contrast in contrasts]
    seeds = sorted(set.intersection(*(set(values) for pair in sides for values in pair)))
    gains = [
        np.array([better[seed] - than[seed] for seed in seeds])
        * (-1 if _lower_is_better(contrast, measured[contrast.comparison]) else 1)
        for contrast, (better, than) in zip(contrasts, sides, strict=True)
    ]
    second = gains[1] if len(gains) > 1 else np.zeros(len(seeds))
    problems = [
        f"{problem.check}: {problem.message}"
        for contrast in contrasts
        for problem in measured[contrast.comparison].report.problems
        if not problem.arms or _arms(contrast, measured[contrast.comparison]) & set(problem.arms)
    ]
    better, than = ([values[seed] for seed in seeds] for values in sides[0])
    return ExpectationResult(
        says=expectation.says,
        better_mean=float(np.mean(better)) if seeds else None,
        than_mean=float(np.mean(than)) if seeds else None,
        difference=compare_paired(list(gains[0]), list(second), lower_is_better=False),
        obstacles=tuple(dict.fromkeys(problems)),
    )


def _arms(contrast: ContrastSettings, measured: MeasuredComparison) -> set[str]:
    """The arms of a contrast, and those whose runs they use."""
    arms = measured.settings.arms
    return {name for arm in (contrast.better, contrast.than) for name in (arm, arms[arm].runs_of) if name is not None}


def _contrast_values(
    contrast: ContrastSettings, measured: MeasuredComparison
) -> tuple[dict[int, float], dict[int, float]]:
    """Seed → value of both sides of a contrast."""
    return (
        arm_values(measured, contrast.better, contrast.measure),
        arm_values(measured, contrast.than, contrast.than_measure or contrast.measure),
    )


def arm_values(measured: MeasuredComparison, arm: str, measure: str) -> dict[int, float]:
    """Seed → value of a measure of an arm, of the cells that have finished."""
    comparison, out = measured.settings, measured.out
    name, metric, group = _parse_measure(measure)
    values: dict[int, float] = {}
    for cell in _measure_cells(comparison, arm, name):
        run = run_path(out, cell.name)
        run_measures = read_run(run)
        if run_measures is None:
            continue
        if name == "pairs":
            values[cell.seed] = float(np.mean([score_pairs(run, pairs).mean() for pairs in comparison.pairs]))
            continue
        key = metric or ("loss" if name == "run" else main_metric(run_measures))
        items = read_item_scores(run) if group else None
        metrics = run_measures.values if items is None else items.groups[group]
        if key not in metrics:
            raise RecipeError(f"{measure}: no metric {key!r} among {', '.join(sorted(metrics))}")
        values[cell.seed] = metrics[key]
    return values


def _measure_cells(comparison: ComparisonSettings, arm: str, name: str) -> list[Cell]:
    """The cells of an arm that a measure is read from."""
    if name in ("run", "pairs"):
        owner = comparison.arms[arm].runs_of or arm
        return [cell for cell in pretrain_cells(comparison, {}) if cell.arm == owner]
    tuned = [cell for cell in task_cells(comparison) if cell.arm == arm]
    cells = [cell for cell in tuned if cell.task is not None and measure_name(cell.task, cell.labels) == name]
    if not cells:
        known = sorted({measure_name(cell.task, cell.labels) for cell in tuned if cell.task is not None})
        raise RecipeError(f"{name}: no such measure; known: run, pairs, {', '.join(known)}")
    return cells


def _parse_measure(measure: str) -> tuple[str, str, str]:
    """Name, metric and group of samples of NAME:METRIC@GROUP; empty where not given."""
    rest, _, group = measure.partition("@")
    name, _, metric = rest.partition(":")
    return name, metric, group


def _lower_is_better(contrast: ContrastSettings, measured: MeasuredComparison) -> bool:
    """Of the metric: losses of held-out text, and metrics of tasks that are losses."""
    name, metric, _ = _parse_measure(contrast.measure)
    if name == "run":
        return not metric.endswith("accuracy")
    if name == "pairs":
        return False
    for cell in _measure_cells(measured.settings, contrast.better, name):
        if not metric and (run_measures := read_run(run_path(measured.out, cell.name))) is not None:
            metric = main_metric(run_measures)
    return metric in LOWER_IS_BETTER


def _used(measured: MeasuredComparison) -> tuple[float, float]:
    """Minutes and FLOPs of all finished cells of a comparison."""
    comparison, out = measured.settings, measured.out
    cells = [*trial_cells(comparison), *pretrain_cells(comparison, {}), *task_cells(comparison)]
    runs = [read_run(run_path(out, cell.name)) for cell in cells if is_finished(out, cell.name)]
    used = [run.used for run in runs if run is not None]
    return sum(of_run["minutes"] for of_run in used), sum(of_run.get("flops", 0.0) for of_run in used)


def adjust_p_values(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    """The results with p-values adjusted over all expectations that can be tested."""
    tested = [
        expectation.difference.p_value
        for result in results
        for expectation in result.expectations
        if expectation.difference.p_value is not None and not expectation.obstacles
    ]
    adjusted = iter(benjamini_hochberg(tested))
    return [
        replace(
            result,
            expectations=[
                replace(expectation, adjusted_p=next(adjusted))
                if expectation.difference.p_value is not None and not expectation.obstacles
                else expectation
                for expectation in result.expectations
            ],
        )
        for result in results
    ]
