"""Cells of a comparison: every training run of every arm and seed, an ordinary run in one folder each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from meristem.compare.comparison_settings import ComparedTaskSettings, ComparisonSettings
from meristem.config.recipe import read_recipe
from meristem.interfaces.backbone import MODEL_FAMILIES

CellKind = Literal["trial", "pretrain", "task"]
WORD_KINDS = ("words", "characters")
"""Tokenizer kinds that a family needs for its own reasons."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a comparison."""

    kind: CellKind
    arm: str
    seed: int
    name: str
    """Its folder below `cells/`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings beside those of its recipe."""
    learning_rate: float = 1.0
    """Multiple of the recipe's learning rate; of a trial."""
    task: ComparedTaskSettings | None = None
    labels: int | None = None
    """Training samples of a task; all of them if None."""
    start: str | None = None
    """The cell whose run a task starts from; None trains it from scratch."""


@dataclass(frozen=True, kw_only=True)
class ArmTokenizer:
    """The tokenizer settings an arm gets, and why they are its own, if they are."""

    settings: Mapping[str, Any]
    reason: str = ""


def arm_tokenizers(comparison: ComparisonSettings) -> dict[str, ArmTokenizer]:
    """The first arm's tokenizer for all arms that can take it; an arm's own with the reason."""
    tokenizers: dict[str, ArmTokenizer] = {}
    shared: Mapping[str, Any] | None = None
    for name, arm in comparison.arms.items():
        if arm.recipe is None:
            continue
        recipe = read_recipe(arm.recipe)[1]
        own = recipe.get("tokenizer") or {}
        family = str((recipe.get("model") or {}).get("family", ""))
        if any(key.startswith("tokenizer.") for key in (*arm.settings, *comparison.settings)):
            tokenizers[name] = ArmTokenizer(settings={}, reason="set for this comparison")
        elif "characters" in MODEL_FAMILIES[family].capabilities or own.get("kind") in WORD_KINDS:
            tokenizers[name] = ArmTokenizer(settings={}, reason=f"{family} reads {own.get('kind', 'words')}")
        elif not comparison.shared_tokenizer:
            tokenizers[name] = ArmTokenizer(settings={}, reason="shared_tokenizer is false")
        else:
            shared = shared if shared is not None else {f"tokenizer.{key}": value for key, value in own.items()}
            tokenizers[name] = ArmTokenizer(settings=shared)
    return tokenizers


def pretrained_arms(comparison: ComparisonSettings) -> list[str]:
    """The arms that have pretraining runs of their own."""
    return [name for name, arm in comparison.arms.items() if arm.recipe is not None]


def trial_cells(comparison: ComparisonSettings) -> Iterator[Cell]:
    """One short run for each arm and learning rate, with seed 0."""
    for arm in pretrained_arms(comparison):
        for multiple in comparison.learning_rates:
            settings = {
                **_pretrain_settings(comparison, arm, 0),
                f"train.{comparison.budget.kind}": comparison.budget.amount * comparison.trial_share,
            }
            yield Cell(
                kind="trial", arm=arm, seed=0, name=f"{arm}--trial-lr{multiple:g}", settings=settings,
                learning_rate=multiple,
            )  # fmt: skip


def pretrain_cells(comparison: ComparisonSettings, learning_rates: Mapping[str, float]) -> Iterator[Cell]:
    """One run for each arm and seed, arms in turn, so that an interrupted comparison has complete seeds."""
    for seed in range(comparison.seeds):
        for arm in pretrained_arms(comparison):
            yield Cell(
                kind="pretrain", arm=arm, seed=seed, name=f"{arm}--s{seed}",
                settings=_pretrain_settings(comparison, arm, seed), learning_rate=learning_rates.get(arm, 1.0),
            )  # fmt: skip


def task_cells(comparison: ComparisonSettings) -> Iterator[Cell]:
    """One fine-tuning for each arm, seed, task and number of labels."""
    for seed in range(comparison.seeds):
        for task in comparison.tasks:
            for labels in (*task.labels, *((None,) if task.all_labels or not task.labels else ())):
                for name, arm in comparison.arms.items():
                    start = None if arm.recipe is None and arm.runs_of is None else f"{arm.runs_of or name}--s{seed}"
                    yield Cell(
                        kind="task", arm=name, seed=seed, name=f"{name}--s{seed}--{measure_name(task, labels)}",
                        settings={**task.settings, **arm.task_settings}, task=task, labels=labels, start=start,
                    )  # fmt: skip


def measure_name(task: ComparedTaskSettings, labels: int | None) -> str:
    """Name of a task's measure and of its cells: the file, the number of labels, and the probe."""
    numbered = [str(labels)] if labels else []
    if task.name is not None:
        return "-".join([task.name, *numbered])
    train = task.data if isinstance(task.data, str) else str(task.data.get("train"))
    source = train.partition("?")[0]
    stem = source.removeprefix("builtin:") if source.startswith("builtin:") else Path(source).name.partition(".")[0]
    return "-".join([stem, *numbered, *(["probe"] if task.method == "probe" else [])])


def _pretrain_settings(comparison: ComparisonSettings, arm: str, seed: int) -> dict[str, Any]:
    """Settings of an arm's runs: tokenizer, those of the comparison, those of the arm, budget and seed."""
    return {
        **arm_tokenizers(comparison)[arm].settings,
        **comparison.settings,
        **comparison.arms[arm].settings,
        f"train.{comparison.budget.kind}": comparison.budget.amount,
        "train.seed": seed,
    }
