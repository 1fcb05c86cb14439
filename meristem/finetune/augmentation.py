"""Noise augmentation: training samples perturbed anew in each epoch, as a function of (seed, epoch, sample)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from numpy.random import Generator

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
        sample = self.samples[piece.sample_index]
        rng = generator(draw.seed, "augment", draw.epoch, piece.sample_index)
        noisy = add_noise(sample, self.task.sample_type, self.perturbations, self.settings, rng)
        if noisy is sample:
            return row
        windows = self.task.encode_samples([noisy])
        number = self.window_numbers[index]
        if number < len(windows):
            row.metadata["piece"] = replace(windows[number], sample_index=piece.sample_index)
        return row


def add_noise(
    sample: Sample, sample_type: str, perturbations: Sequence[Perturbation], settings: AugmentSettings, rng: Generator
) -> Sample:
    """The sample with up to `max_perturbations` kinds of noise, one after another; itself outside of the share."""
    if rng.random() >= settings.share:
        return sample
    count = min(len(perturbations), 1 + int(rng.integers(settings.max_perturbations)))
    for index in sorted(rng.permutation(len(perturbations))[:count].tolist()):
        severity = settings.severity * float(rng.random())
        sample = perturb_sample(sample, sample_type, perturbations[index], severity, rng)
    return sample


def noisy_samples(samples: Sequence[Sample], sample_type: str, settings: AugmentSettings) -> Iterator[Sample]:
    """Each sample with noise, those that have none left out: more text for a tokenizer of one's own."""
    perturbations = augmenting_perturbations(settings, sample_type)
    for index, sample in enumerate(samples):
        rng = generator(0, "augment tokenizer", 0, index)
        noisy = add_noise(sample, sample_type, perturbations, settings, rng)
        if noisy is not sample:
            yield noisy


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
