"""Labelled data for fine-tuning: batches, evaluation by the task's metrics, and the task report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import FinetuneRecipe, Recipe
from meristem.dataset.feed import Feed
from meristem.dataset.length_buckets import PieceView
from meristem.dataset.unknown_tokens import unknown_share_of_texts, unknown_warning
from meristem.drawing.task_report_terminal import task_report_tables
from meristem.evaluation.task_predictions import NaNError, evaluate_predictions, fit_mixture, predict
from meristem.finetune.augmentation import AugmentedPieceView
from meristem.finetune.task_reporting import build_task_report, task_card_lines, write_task_report
from meristem.interfaces.backbone import Model
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task import Task
from meristem.labelled.settings import DataSettings
from meristem.learning.learner import Learner
from meristem.training.data.sample_pieces import SampleData
from meristem.training.data.training_data import EvaluateFn
from meristem.training.run_logger import RunLogger
from meristem.utils.shell_quoting import shell_path


@dataclass(frozen=True, kw_only=True)
class LabelledData(SampleData):
    """Labelled samples of a task."""

    recipe: FinetuneRecipe
    task: Task
    _predictions: dict[str, list[Any]] = field(default_factory=dict)

    def make_pieces(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Samples as encoded by the task."""
        return self.task.encode_samples(samples)

    def build_view(self, split: str) -> PieceView:
        """The pieces of a split; those of training with noise, if data.augment is set."""
        settings = self.recipe.data.augment
        if split != "train" or settings is None:
            return super().build_view(split)
        return AugmentedPieceView(self.pieces(split), self.samples[split], self.task, settings)

    def build_evaluator(
        self, recipe: Recipe, learner: Learner, split: str, log: Callable[[str], None]
    ) -> EvaluateFn | None:
        """Loss and task metrics on the whole split; only the loss on validation if the task is selected by it.

        Of several processes one predicts, with the cores of all: predictions of any task need not be sent about.
        """
        samples, task = self.samples.get(split), self.task
        if not samples:
            return None
        loss_only = split == "validation" and task.metric == "loss"

        def evaluate() -> dict[str, float]:
            try:
                if split == "validation":
                    fit_mixture(learner, task, self.pieces(split))
                predictions = predict(learner, samples, self.pieces(split), with_predictions=not loss_only)
            except NaNError as error:
                log(f"{split}: {error}")
                return dict.fromkeys(("loss", task.metric), math.nan)
            if split == "test":  # evaluated once, with the final weights: reused by the report
                self._predictions[split] = predictions.predictions
            if loss_only:
                return predictions.losses
            scores = task.metrics.compute(predictions.predictions, samples)
            # names with a dot are per entity type and only shown in the report
            return {**predictions.losses, **{name: value for name, value in scores.items() if "." not in name}}

        return partial(self.distributed.compute_on_rank_zero, evaluate, all_cores=True)

    @property
    def selection_metric(self) -> str:
        """The task's main metric."""
        return self.task.metric

    def iter_texts(self) -> Iterator[str]:
        """The texts of all training samples."""
        return (text for sample in self.samples["train"] for text in self.task.sample_texts(sample))

    def describe_data(self) -> list[str]:
        """Sizes of the splits, warnings about the data, and three samples as they were parsed."""
        sizes = ", ".join(f"{len(samples):,} {split}" for split, samples in self.samples.items())
        notices = [f"{sizes} samples", *self.data_notices()]
        return [
            *notices,
            "Samples as parsed:",
            *(f"  {self.task.describe_sample(sample)[:300]}" for sample in self.samples["train"][:3]),
        ]

    def data_notices(self) -> list[str]:
        """Warnings: problems found while loading, unknown tokens, and truncated samples."""
        unknown_notice = unknown_warning(
            unknown_share_of_texts(islice(self.iter_texts(), UNKNOWN_SAMPLE_TEXTS), self.tokenizer),
            _split_files(self.recipe.data, "train"),
        )
        notices = [*self.notices, *([unknown_notice] if unknown_notice else [])]
        for split in self.samples:
            truncated = [piece for piece in self.pieces(split) if piece.num_truncated]
            if truncated:
                truncated_samples = {piece.sample_index for piece in truncated}
                notices.append(
                    f"{split}: {len(truncated_samples):,} of {len(self.samples[split]):,} samples are longer than "
                    f"{self.recipe.task.max_length} tokens and were truncated (task.max_length)"
                )
        return notices

    def preview_samples(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """Location and beginning of samples."""
        previews = []
        for piece_id in ids:
            piece: SamplePiece = feed.batch_at(piece_id, 1).metadata[0]["piece"]
            sample = self.samples["train"][piece.sample_index]
            previews.append(f"{sample.location} {self.task.describe_sample(sample)}"[:120])
        return previews

    def example_commands(self, run_path: str, model: Model) -> list[str]:
        """Example commands on a training sample."""
        return [*self.task.example_commands(run_path, self.samples["train"][0]), f"meristem evaluate {run_path}"]

    def source_lines(self) -> list[str]:
        """The files of each split."""
        return [
            f"{split}: {_split_files(self.recipe.data, split)}, {len(samples):,} samples"
            for split, samples in self.samples.items()
        ]

    def write_reports(self, run: RunFolder, learner: Learner, logger: RunLogger) -> list[str]:
        """Write the report on the test split, or on validation: metrics with intervals, confusions, mistakes."""
        split = next((name for name in ("test", "validation") if self.samples.get(name)), None)
        if split is None:
            return []
        samples = self.samples[split]
        predictions = self._predictions.get(split) or predict(learner, samples, self.pieces(split)).predictions
        report = build_task_report(
            run,
            self.recipe,
            learner,
            self.task,
            self.samples,
            split=split,
            evaluation=evaluate_predictions(self.task, predictions, samples),
            notices=self.data_notices(),
            sources=self.source_lines(),
            commands=self.example_commands(shell_path(run.path), learner.model),
        )
        write_task_report(report, run.path)
        logger.log_tables(task_report_tables(report))
        logger.log(f"Report: {run.path / 'report.html'}")
        return task_card_lines(report, self.task.parts.head.classes.labels)


UNKNOWN_SAMPLE_TEXTS = 2000
"""Number of training texts in which unknown tokens are counted."""


def _split_files(data: DataSettings, split: str) -> str:
    """The files of a split, or that it is held out of the training files."""
    split_source = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    files = ", ".join(f"`{file}`" for file in _as_sequence(split_source or data.train or ()))
    return files if split_source is not None else f"held out of {files}"


def _as_sequence(files: str | Sequence[str]) -> Sequence[str]:
    return (files,) if isinstance(files, str) else files
