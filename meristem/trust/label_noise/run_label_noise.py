"""Label noise of labelled files: confident learning on cross-validated probabilities, near duplicates, triggers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.validation import build_settings
from meristem.data.formats.conll import ConllFormat
from meristem.drawing.html_page import current_timestamp
from meristem.evaluation.run_tasks import run_tasks, select_task
from meristem.evaluation.text_embeddings import embed, encode_text
from meristem.interfaces.sample import Sample
from meristem.labelled.columns import MissingColumnError
from meristem.labelled.load import load_samples
from meristem.labelled.sample_type import SAMPLE_TYPES
from meristem.labelled.sample_types.words import WordsSample
from meristem.labelled.settings import DataSettings
from meristem.trust.label_noise.confident_learning import NoiseEstimate, estimate_noise, noise_matrix
from meristem.trust.label_noise.duplicate_samples import find_duplicates
from meristem.trust.label_noise.label_noise_report import LabelNoiseReport, LabelSuspect
from meristem.trust.label_noise.label_triggers import find_triggers
from meristem.trust.label_noise.out_of_sample import Log, assign_folds, cross_validate, sample_texts
from meristem.trust.label_noise.tagged_words import TaggedWords, cross_validate_tags

MAX_LABELS = 200
"""With more the matrix of labels says nothing, and most labels have too few samples."""


def measure_label_noise(
    files: Sequence[str],
    *,
    run: LoadedRun | None = None,
    columns: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    tags: bool = False,
    log: Log = lambda message: None,
) -> LabelNoiseReport:
    """The label noise report of labelled files; with a run its data settings and frozen embeddings are used.

    With `tags`, of files whose name ends like a CoNLL file's, and of a tagging run's, every word is a sample.
    """
    if folds < 2:
        raise RecipeError("--folds: give at least 2")
    notices: list[str] = []
    tags = tags or all(Path(file).suffix in ConllFormat.suffixes for file in files)
    samples, files_of, sample_type = _load(files, run, columns or {}, notices, tags=tags)
    if sample_type == "words":
        return _measure_tag_noise(samples, files, files_of, folds, seed, notices, log)
    sample_class = SAMPLE_TYPES["pair" if "text_b" in samples[0].inputs else "text"]
    given = [_label(sample) for sample in samples]
    labels = sorted(set(given))
    _check_labels(labels, len(samples), folds)
    fold_of = assign_folds([sample_class.dedup_key(sample) for sample in samples], folds, seed)
    embeddings = None if run is None else _embeddings(run, samples)
    probabilities = cross_validate(samples, given, labels, fold_of, embeddings=embeddings, log=log)
    given_ids: NDArray[np.int64] = np.array([labels.index(label) for label in given], np.int64)
    noise = estimate_noise(probabilities, given_ids)
    texts, locations = [" | ".join(sample_texts(sample)) for sample in samples], [sample.location for sample in samples]
    log("near duplicates and triggers")
    return LabelNoiseReport(
        files=list(files),
        num_samples=len(samples),
        labels=labels,
        model="logistic regression on words and pairs of words" if run is None else f"embeddings of {run.run.path}",
        folds=folds,
        accuracy=float((probabilities.argmax(1) == given_ids).mean()),
        noise_rate=noise.noise_rate,
        noise_matrix=noise_matrix(noise.joint).tolist(),
        suspects=_suspects(noise, probabilities, labels, given_ids, texts.__getitem__, locations.__getitem__),
        duplicates=find_duplicates(texts, given, locations, files_of),
        triggers=find_triggers(texts, given, labels, locations, fold_of),
        notices=notices,
        date=current_timestamp(),
    )


def _suspects(
    noise: NoiseEstimate,
    probabilities: NDArray[np.float64],
    labels: Sequence[str],
    given_ids: NDArray[np.int64],
    text_at: Callable[[int], str],
    location_at: Callable[[int], str],
) -> list[LabelSuspect]:
    return [
        LabelSuspect(
            location=location_at(index),
            text=text_at(index),
            given=labels[int(given_ids[index])],
            suggested=labels[int(noise.suggested[index])],
            given_probability=float(probabilities[index, given_ids[index]]),
            suggested_probability=float(probabilities[index, noise.suggested[index]]),
        )
        for index in noise.suspects.tolist()
    ]


def _measure_tag_noise(
    samples: Sequence[Sample],
    files: Sequence[str],
    files_of: Sequence[str],
    folds: int,
    seed: int,
    notices: Sequence[str],
    log: Log,
) -> LabelNoiseReport:
    """The report of tagged sentences: every word is a sample, and all words of a sentence are in one fold."""
    words = TaggedWords.of(samples)
    labels = sorted(set(words.tags))
    _check_labels(labels, len(words.tags), folds)
    fold_of = assign_folds([WordsSample.dedup_key(sample) for sample in samples], folds, seed)
    probabilities = cross_validate_tags(words, labels, fold_of, log)
    columns = {label: column for column, label in enumerate(labels)}
    given_ids: NDArray[np.int64] = np.array([columns[tag] for tag in words.tags], np.int64)
    noise = estimate_noise(probabilities, given_ids)
    texts, locations = [str(sample.inputs["text"]) for sample in samples], [sample.location for sample in samples]
    log("near duplicates")
    return LabelNoiseReport(
        files=list(files),
        num_samples=len(words.tags),
        unit="words",
        labels=labels,
        model="a linear tagger on words, their affixes and their neighbours",
        folds=folds,
        accuracy=float((probabilities.argmax(1) == given_ids).mean()),
        noise_rate=noise.noise_rate,
        noise_matrix=noise_matrix(noise.joint).tolist(),
        suspects=_suspects(noise, probabilities, labels, given_ids, words.context, words.location),
        duplicates=find_duplicates(texts, [""] * len(texts), locations, files_of),
        triggers=[],
        notices=notices,
        date=current_timestamp(),
    )


def _load(
    files: Sequence[str], run: LoadedRun | None, columns: Mapping[str, Any], notices: list[str], *, tags: bool
) -> tuple[list[Sample], list[str], str]:
    """The samples of all files, the file of each, and their sample type."""
    settings = DataSettings.model_validate({}) if run is None else run.recipe.data_settings
    sample_type = "pair" if "text_b" in columns or settings.text_b else "text"
    if run is not None:
        sample_type = select_task(run_tasks(run), run).sample_type
    if tags:
        sample_type = "words"
    if sample_type not in ("text", "pair", "words"):
        raise MeristemError(
            "--from: label noise is found in classification, pair and tagging data; this run has another task"
        )
    if sample_type == "words" and run is not None:
        notices.append("--from: only its column names are used; wrong tags are found by a linear tagger on words")
    column_settings = build_settings(DataSettings, {**settings.model_dump(), **columns}, "columns")
    samples: list[Sample] = []
    files_of: list[str] = []
    for file in files:
        try:
            loaded = load_samples(file, column_settings, sample_type, notices=notices)
        except MissingColumnError as error:
            raise error.for_option() from None
        samples += loaded
        files_of += [file] * len(loaded)
    return samples, files_of, sample_type


def _label(sample: Sample) -> str:
    """The label of a sample; numbers and lists of labels are refused."""
    if isinstance(sample.gold, list | tuple):
        raise MeristemError(f"{sample.location}: several labels of one sample; label noise needs one label per sample")
    return str(sample.gold)


def _check_labels(labels: Sequence[str], num_samples: int, folds: int) -> None:
    if len(labels) < 2:
        raise MeristemError(f"every sample has the label {labels[0]!r}; at least two labels are needed")
    if len(labels) > MAX_LABELS or 2 * len(labels) > num_samples:
        raise MeristemError(
            f"{len(labels):,} different labels in {num_samples:,} samples: this is no classification; name the column "
            "of the labels with --columns label=COLUMN"
        )
    if num_samples < 2 * folds:
        raise MeristemError(f"{num_samples} samples cannot be cross-validated in {folds} folds; give fewer --folds")


def _embeddings(run: LoadedRun, samples: Sequence[Sample]) -> NDArray[np.float32]:
    """[samples, width]: the frozen text embeddings of a run; those of a pair beside each other, with difference."""
    parts = []
    for number in range(len(sample_texts(samples[0]))):
        encoded = [encode_text(run.learner.model, run.tokenizer, sample_texts(sample)[number]) for sample in samples]
        parts.append(embed(run.learner.model, run.tokenizer, encoded, None).float().cpu().numpy())
    if len(parts) == 2:
        parts += [np.abs(parts[0] - parts[1]), parts[0] * parts[1]]
    return np.concatenate(parts, axis=1).astype(np.float32)
