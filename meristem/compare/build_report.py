"""Building the report of a comparison: measures read from finished cells, arms compared over their common seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.compare.cells import Cell, arm_tokenizers, measure_name
from meristem.compare.comparison_report import ArmResult, ComparisonReport, MeasureResult
from meristem.compare.comparison_settings import ComparisonSettings
from meristem.compare.item_scores import ItemScores, read_item_scores
from meristem.compare.measures import (
    LOWER_IS_BETTER,
    Measure,
    RunMeasures,
    loss_key,
    main_metric,
    read_run,
    score_pairs,
    suite_name,
)
from meristem.compare.split_statistics import SplitStatistics, split_statistics
from meristem.compare.statistics import adjust_verdicts, compare_paired, item_permutation_test
from meristem.compare.train_cell import is_finished, run_path
from meristem.compare.validity import find_problems
from meristem.config.recipe import read_recipe


def build_report(
    comparison: ComparisonSettings,
    out: Path,
    pretrained: Sequence[Cell],
    tuned: Sequence[Cell],
    learning_rates: Mapping[str, float],
    errors: Mapping[str, str],
) -> ComparisonReport:
    """Read all finished cells and compare the arms; `errors` says why cells failed, by their names."""
    cells_folder = out / "cells"
    runs: dict[str, dict[int, RunMeasures]] = {arm: {} for arm in comparison.arms}
    for cell in pretrained:
        measures = read_run(cells_folder / cell.name)
        if measures is not None:
            runs[cell.arm][cell.seed] = measures
    statistics: dict[str, SplitStatistics] = {}
    for cell in pretrained:
        if cell.seed == 0 and 0 in runs[cell.arm] and (split := split_statistics(cells_folder / cell.name)) is not None:
            statistics[cell.arm] = split
    results = [
        *_loss_measures(runs, cells_folder),
        *(_pair_measure(comparison, runs, cells_folder, pairs) for pairs in comparison.pairs),
        *_task_measures(comparison, tuned, out),
    ]
    problems = find_problems(
        comparison.budget,
        {arm: list(of_arm.values()) for arm, of_arm in runs.items()},
        Counter(cell.arm for cell in (*pretrained, *tuned) if not is_finished(out, cell.name)),
        {cell.arm: errors[cell.name] for cell in (*tuned, *pretrained) if cell.name in errors},
        statistics,
        _tuned_runs(comparison, tuned, out),
    )
    return ComparisonReport(
        settings=comparison,
        problems=problems,
        measures=_adjusted(results),
        costs={arm: _costs(list(of_arm.values())) for arm, of_arm in runs.items() if of_arm},
        curves={arm: of_arm[0].curve for arm, of_arm in runs.items() if 0 in of_arm},
        tokenizers={arm: tokenizer.reason for arm, tokenizer in arm_tokenizers(comparison).items()},
        learning_rates=learning_rates,
        differences=_recipe_differences(comparison),
    )


def _tuned_runs(
    comparison: ComparisonSettings, tuned: Sequence[Cell], out: Path
) -> dict[str, list[tuple[str, RunMeasures, ItemScores | None]]]:
    """Arm → name, measures and scored samples of each of its finished fine-tunings."""
    runs: dict[str, list[tuple[str, RunMeasures, ItemScores | None]]] = {arm: [] for arm in comparison.arms}
    for cell in tuned:
        path = run_path(out, cell.name)
        if cell.task is not None and (measures := read_run(path)) is not None:
            runs[cell.arm].append((measure_name(cell.task, cell.labels), measures, read_item_scores(path)))
    return runs


def _costs(runs: Sequence[RunMeasures]) -> dict[str, float]:
    used = {key: float(np.mean([measures.used[key] for measures in runs])) for key in runs[0].used}
    speed = used["tokens"] / max(60 * used["minutes"], 1e-9)
    return {**used, "tokens_per_second": speed, "memory": max(measures.peak_memory for measures in runs)}


def _loss_measures(runs: Mapping[str, Mapping[int, RunMeasures]], cells_folder: Path) -> list[MeasureResult]:
    """Bits per byte of the arms that have them, and each objective's own loss."""
    results = []
    keys = {arm: loss_key(cells_folder / f"{arm}--s{min(of_arm)}") for arm, of_arm in runs.items() if of_arm}
    for name in ("bits_per_byte", "loss"):
        values = {
            arm: {seed: measures.values[name] for seed, measures in of_arm.items() if name in measures.values}
            for arm, of_arm in runs.items()
        }
        if any(values.values()):
            measure = Measure(name=name, metric=name, lower_is_better=True, same_objective_only=name == "loss")
            results.append(_measure_result(measure, values, loss_keys=keys))
    return results


def _pair_measure(
    comparison: ComparisonSettings, runs: Mapping[str, Mapping[int, RunMeasures]], cells_folder: Path, pairs: str
) -> MeasureResult:
    """Accuracy on minimal pairs, with a permutation test over the pairs."""
    correct = {
        arm: {seed: score_pairs(cells_folder / f"{arm}--s{seed}", pairs) for seed in of_arm}
        for arm, of_arm in runs.items()
    }
    values = {arm: {seed: float(scores.mean()) for seed, scores in of_arm.items()} for arm, of_arm in correct.items()}
    measure = Measure(name=suite_name(pairs), metric="accuracy", lower_is_better=False)
    return _measure_result(measure, values, items=correct)


def _task_measures(comparison: ComparisonSettings, tuned: Sequence[Cell], out: Path) -> list[MeasureResult]:
    """The main metric of every task and number of labels, with a permutation test over the test samples."""
    values: dict[str, dict[str, dict[int, float]]] = {}
    items: dict[str, dict[str, dict[int, ItemScores]]] = {}
    metrics: dict[str, str] = {}
    for cell in tuned:
        assert cell.task is not None
        name = measure_name(cell.task, cell.labels)
        of_arm = values.setdefault(name, {arm: {} for arm in comparison.arms})
        measures = read_run(run_path(out, cell.name))
        if measures is not None:
            metrics[name] = main_metric(measures)
            of_arm[cell.arm][cell.seed] = measures.values[metrics[name]]
            if (scores := read_item_scores(run_path(out, cell.name))) is not None:
                items.setdefault(name, {}).setdefault(cell.arm, {})[cell.seed] = scores
    return [
        _measure_result(
            Measure(name=name, metric=metrics[name], lower_is_better=metrics[name] in LOWER_IS_BETTER),
            values[name],
            items=_comparable_items(items.get(name, {})),
        )
        for name in metrics
    ]


def _comparable_items(
    items: Mapping[str, Mapping[int, ItemScores]],
) -> dict[str, dict[int, NDArray[np.float64]]] | None:
    """Arm → seed → scores of the same test samples; None if some have none, or other samples."""
    every = [scores for of_arm in items.values() for scores in of_arm.values()]
    if len({scores.samples_hash for scores in every}) != 1:
        return None
    scores_by_arm = {
        arm: {seed: of.scores for seed, of in of_arm.items() if of.scores is not None} for arm, of_arm in items.items()
    }
    return scores_by_arm if sum(map(len, scores_by_arm.values())) == len(every) else None


def _measure_result(
    measure: Measure,
    values: Mapping[str, Mapping[int, float]],
    *,
    items: Mapping[str, Mapping[int, NDArray[np.float64]]] | None = None,
    loss_keys: Mapping[str, str] | None = None,
) -> MeasureResult:
    """Compare every arm with the first one over the seeds that both have finished."""
    baseline = next(iter(values))
    arms = []
    for arm, of_arm in values.items():
        seeds = sorted(of_arm.keys() & values[baseline].keys())
        comparable = not measure.same_objective_only or (loss_keys or {}).get(arm) == (loss_keys or {}).get(baseline)
        paired = None
        if arm != baseline and seeds and comparable:
            item_p = None
            if items is not None and all(seed in items.get(name, {}) for name in (arm, baseline) for seed in seeds):
                item_means = [np.mean([items[name][seed] for seed in seeds], axis=0) for name in (arm, baseline)]
                item_p = item_permutation_test(*item_means)
            paired = compare_paired(
                [of_arm[seed] for seed in seeds],
                [values[baseline][seed] for seed in seeds],
                lower_is_better=measure.lower_is_better,
                item_p=item_p,
            )
        arms.append(ArmResult(arm=arm, values=dict(sorted(of_arm.items())), comparison=paired))
    return MeasureResult(measure=measure, arms=arms)


def _recipe_differences(comparison: ComparisonSettings) -> dict[str, dict[str, Any]]:
    """Arm → the settings of its recipe and its overrides that differ from the first arm's, dotted key → value."""
    flat = {name: _flat_settings(comparison, name) for name in comparison.arms}
    first = flat[next(iter(flat))]
    return {
        name: {key: values.get(key) for key in sorted({*values, *first}) if values.get(key) != first.get(key)}
        for name, values in flat.items()
    }


def _adjusted(results: Sequence[MeasureResult]) -> list[MeasureResult]:
    """The measures with verdicts that are adjusted for all tests of the report."""
    compared = [result.comparison for measure in results for result in measure.arms if result.comparison is not None]
    adjusted = iter(adjust_verdicts(compared))
    return [
        replace(
            measure,
            arms=[
                result if result.comparison is None else replace(result, comparison=next(adjusted))
                for result in measure.arms
            ],
        )
        for measure in results
    ]


def _flat_settings(comparison: ComparisonSettings, name: str) -> dict[str, Any]:
    """Recipe, overrides and settings of fine-tuning of an arm, dotted key → value."""
    arm = comparison.arms[name]
    tuning = {f"fine-tuning: {key}": value for key, value in arm.task_settings.items()}
    pretrained = comparison.arms[arm.runs_of] if arm.runs_of is not None else arm
    if pretrained.recipe is None:
        return {"pretraining": "none", **tuning}
    return {**_flatten(read_recipe(pretrained.recipe)[1]), **comparison.settings, **pretrained.settings, **tuning}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
