"""Measures of a comparison: what is read from finished runs, and minimal pairs scored item by item."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import parse_recipe_file
from meristem.drawing.training_curves import read_metrics
from meristem.evaluation.minimal_pairs import pair_differences, read_pairs
from meristem.utils import untrusted_files

LOWER_IS_BETTER = frozenset({"loss", "bits_per_byte", "perplexity", "squared_error"})

TRAINING_ONLY = frozenset(
    {"initial_mask_rate", "adaptive_masking", "min_adaptive_weight", "num_maskings", "sampled_softmax"}
)
"""Settings of objectives that evaluation ignores."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One column of a comparison."""

    name: str
    """`bits_per_byte`, `loss`, `blimp`, `sst2-100`."""
    metric: str
    """What is measured: bits_per_byte, loss, accuracy, f1, …"""
    lower_is_better: bool
    same_objective_only: bool = False
    """Whether values of arms with other objectives cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class RunMeasures:
    """What a finished run of a comparison gives."""

    values: Mapping[str, float]
    """Metric → value on held-out data."""
    used: Mapping[str, float]
    """Steps, tokens, FLOPs and minutes used."""
    curve: Sequence[Mapping[str, float]]
    """Validation loss over steps, tokens, FLOPs and minutes, the last three in proportion to the steps."""
    peak_memory: int
    """Largest resident memory of the process, in bytes; 0 if not recorded."""
    best_step: int
    judged_by: str


def read_run(path: Path) -> RunMeasures | None:
    """The measures of a finished run; None if it is not finished. The test split counts where there is one."""
    run = RunFolder(path)
    record = run.finish_record
    if record is None:
        return None
    lines, used = read_metrics(run.metrics_path), record["used"]
    per_step = {kind: amount / max(1, used["steps"]) for kind, amount in used.items()}
    curve = [
        {**{kind: amount * line["step"] for kind, amount in per_step.items()}, "loss": float(line["loss"])}
        for line in lines
        if line["kind"] == "evaluation" and line.get("loss") is not None
    ]
    return RunMeasures(
        values=record["test"] or record["validation"],
        used=used,
        curve=curve,
        peak_memory=int(max((line.get("memory") or 0 for line in lines if line["kind"] == "train"), default=0)),
        best_step=record["best_step"],
        judged_by=record["judged_by"],
    )


def loss_key(run: Path) -> str:
    """What the held-out loss of a run depends on beside its weights: objectives as they are evaluated, and tokens.

    Losses at different mask rates, or of different tokens, cannot be compared.
    """
    recipe = parse_recipe_file(RunFolder(run).recipe_path)
    tokenizer = hashlib.sha256(RunFolder(run).tokenizer_path.read_bytes()).hexdigest()
    objectives = {key: recipe[key] for key in ("objective", "mix", "phases") if key in recipe}
    return untrusted_files.to_json({"tokenizer": tokenizer, **_as_evaluated(objectives)})


def _as_evaluated(value: Any) -> Any:
    """Settings of objectives without those that only change training."""
    if isinstance(value, dict):
        return {key: _as_evaluated(item) for key, item in value.items() if key not in TRAINING_ONLY}
    return [_as_evaluated(item) for item in value] if isinstance(value, list) else value


def score_pairs(run: Path, pairs: str) -> NDArray[np.float64]:
    """For each minimal pair 1 where the run prefers the acceptable sentence, else 0; kept in the run."""
    cached = _pairs_file(run, pairs)
    if cached.is_file():
        return np.array(untrusted_files.read_json_object(cached)["correct"], np.float64)
    loaded = load_run(run)
    differences = pair_differences(loaded.learner.model, loaded.tokenizer, read_pairs(Path(pairs)))
    correct = [int(difference > 0) for difference in differences]
    disk.atomic_write(cached, [untrusted_files.to_json({"pairs": pairs, "correct": correct}).encode()])
    return np.array(correct, np.float64)


def has_pair_scores(run: Path, pairs: str) -> bool:
    """Whether a run has been scored on these pairs."""
    return _pairs_file(run, pairs).is_file()


def _pairs_file(run: Path, pairs: str) -> Path:
    return run / f"pairs-{suite_name(pairs)}.json"


def suite_name(pairs: str) -> str:
    """Name of a suite of minimal pairs: its file or folder without endings."""
    return Path(pairs).name.partition(".")[0] or "pairs"


def main_metric(measures: RunMeasures) -> str:
    """The metric of a task run: the one that selects its best checkpoint, or BLEU or ROUGE instead of `loss`."""
    if measures.judged_by != "loss":
        return measures.judged_by
    for name in ("bleu", "rougeL", "loss"):
        if name in measures.values:
            return name
    raise MeristemError(f"no metric among {', '.join(measures.values)}")
