"""Noise augmentation: training samples perturbed anew in each epoch, as a function of (seed, epoch, sample)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meristem.config.errors import RecipeError
from meristem.dataset.length_buckets import PieceView
from meristem.inputs.batch import Row
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task import Task
from meristem.labelled.perturb_samples import check_sample_type, obstacle, perturb_sample
from meristem.labelled.perturbation import PERTURBATIONS, Perturbation, build_perturbation
from meristem.labelled.settings import AugmentSettings
from meristem.utils.randomness import SampleRng, generator


class AugmentedPieceView(PieceView):
    """Pieces of which a share are encoded again from their sample with noise.

    All windows of a long sample have the same noise in an epoch. A window that the noisy sample does not have, because
    it became shorter, keeps its clean text.
    """

    def __init__(
        self, pieces: Sequence[SamplePiece], samples: Sequence[Sample], task: Task, settings: AugmentSettings
    ) -> None:
        super().__init__(pieces, shuffled=True)
        self.samples, self.task, self.settings = samples, task, settings
        self.perturbations = augmenting_perturbations(settings, task.sample_type)
        earlier_windows: Counter[int] = Counter()
        self.window_numbers: list[int] = []
        """For each piece its number among those of its sample."""
        for piece in pieces:
            self.window_numbers.append(earlier_windows[piece.sample_index])
            earlier_windows[piece.sample_index] += 1

    def row(self, index: int, draw: SampleRng) -> Row:
        """The piece, or the same window of its sample with noise."""
        row = super().row(index, draw)
        piece = self.pieces[index]
        rng = generator(draw.seed, "augment", draw.epoch, piece.sample_index)
        if rng.random() >= self.settings.share:
            return row
        perturbation = self.perturbations[int(rng.integers(len(self.perturbations)))]
        severity = self.settings.severity * float(rng.random())
        sample = self.samples[piece.sample_index]
        noisy = perturb_sample(sample, self.task.sample_type, perturbation, severity, rng)
        if noisy is sample:
            return row
        windows = self.task.encode_samples([noisy])
        number = self.window_numbers[index]
        if number < len(windows):
            row.metadata["piece"] = replace(windows[number], sample_index=piece.sample_index)
        return row


def augmenting_perturbations(settings: AugmentSettings, sample_type: str) -> list[Perturbation]:
    """The perturbations that are drawn from; raises if one cannot be used for these samples."""
    dictionary = None if settings.dictionary is None else Path(settings.dictionary)
    named = [(name, build_perturbation(name, dictionary)) for name in settings.perturbations or PERTURBATIONS]
    for name, perturbation in named if settings.perturbations else ():
        if reason := obstacle(perturbation, sample_type):
            raise RecipeError(f"data.augment.perturbations: {name} cannot be used for this task: {reason}")
    if settings.perturbations:
        return [perturbation for _, perturbation in named]
    return [item for _, item in named if not item.label_risk and not obstacle(item, sample_type)]


def check_augmentation(settings: AugmentSettings, sample_type: str, task_name: str) -> None:
    """Raise for samples that cannot be perturbed, before anything is read."""
    check_sample_type(sample_type, task_name)
    augmenting_perturbations(settings, sample_type)
