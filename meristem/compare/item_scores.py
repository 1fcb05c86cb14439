"""Scores of single test samples of a fine-tuned run, and its metrics on short and long samples; kept in the run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import load_run
from meristem.compare.measures import main_metric, read_run
from meristem.data.text_units import split_words
from meristem.evaluation.run_tasks import run_tasks, select_task
from meristem.evaluation.task_predictions import predict
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.labelled.load import load_splits
from meristem.utils import untrusted_files

ITEMS_FILE = "items.json"
LENGTH_GROUPS = ("short", "medium", "long")
"""Thirds of the test samples by the words of their input."""


@dataclass(frozen=True, kw_only=True)
class ItemScores:
    """The main metric of each test sample, and all metrics of each third of them by length."""

    scores: NDArray[np.float64] | None
    """None where the metric of one sample says nothing (correlations)."""
    samples_hash: str
    """Scores of two runs can be compared item by item if it is the same."""
    groups: Mapping[str, Mapping[str, float]]
    leak_share: float
    """Share of the words of the test samples that are in samples with the text of a training sample; by words, because
    short texts ("Thank you .") occur twice in every corpus."""


def has_item_scores(run: Path) -> bool:
    """Whether the samples of a run have been scored."""
    return (run / ITEMS_FILE).is_file()


def read_item_scores(run: Path) -> ItemScores | None:
    """The scores of a run; None if they have not been computed."""
    if not has_item_scores(run):
        return None
    record = untrusted_files.read_json_object(run / ITEMS_FILE)
    scores = None if record["scores"] is None else np.array(record["scores"], np.float64)
    return ItemScores(
        scores=scores,
        samples_hash=record["samples_hash"],
        groups=record["groups"],
        leak_share=record["leak_share"],
    )


def write_item_scores(run: Path) -> None:
    """Predict the run's test samples and store the scores of each."""
    loaded = load_run(run)
    task = select_task(run_tasks(loaded), loaded)
    splits = load_splits(loaded.recipe.data_settings, task.sample_type).samples
    samples = splits.get("test") or splits.get("validation") or []
    measures = read_run(run)
    assert measures is not None
    compute_metrics = task.metrics.resampler(predict(loaded.learner, samples, task=task).predictions, samples)
    metric = main_metric(measures)
    scores = [compute_metrics(np.array([index])).get(metric, math.nan) for index in range(len(samples))]
    texts, train_texts = _texts(task, samples), set(_texts(task, splits.get("train") or []))
    lengths = [len(split_words(text)) for text in texts]
    order = np.argsort(lengths, kind="stable")
    record = {
        "metric": metric,
        "scores": scores if all(map(math.isfinite, scores)) else None,
        "samples_hash": hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:16],
        "leak_share": sum(length for text, length in zip(texts, lengths, strict=True) if text in train_texts)
        / max(1, sum(lengths)),
        "groups": {
            name: dict(compute_metrics(np.sort(third)))
            for name, third in zip(LENGTH_GROUPS, np.array_split(order, len(LENGTH_GROUPS)), strict=True)
        },
    }
    disk.atomic_write(run / ITEMS_FILE, [untrusted_files.to_json(record).encode()])


def _texts(task: Task, samples: Sequence[Sample]) -> list[str]:
    """The texts of each sample's input, joined."""
    return [" ".join(task.signature.texts(sample.inputs)) for sample in samples]
