"""Checks of a run and its data through the Python API: robustness, label noise, exposure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from meristem.api.loaded_model import LoadedModel, load
from meristem.checkpoint.load_run import load_run
from meristem.in_memory_data import TableLike, as_file
from meristem.trust.exposure.exposure_files import check_out, write_exposure
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.exposure_report import ExposureReport
from meristem.trust.exposure.run_exposure import measure_exposure
from meristem.trust.label_noise.label_noise_report import LabelNoiseReport
from meristem.trust.label_noise.run_label_noise import measure_label_noise
from meristem.trust.robustness.robustness_report import RobustnessReport
from meristem.trust.robustness.run_robustness import DEFAULT_SEVERITIES, RobustnessOptions, measure_robustness
from meristem.trust.robustness.write_robustness import write_robustness
from meristem.utils.console import TerminalConsole


def robustness(
    run: str | Path | LoadedModel,
    data: str | Path | TableLike | None = None,
    *,
    severities: Sequence[float] = DEFAULT_SEVERITIES,
    only: Sequence[str] = (),
    seed: int = 0,
    limit: int | None = None,
    tests: str | Path | None = None,
    dictionary: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    out: str | Path | None = None,
) -> RobustnessReport:
    """How a fine-tuned run fails on noisy and hostile input.

    Args:
        run: A fine-tuned run, or one that is loaded.
        data: Labelled data; default: the samples the run held out.
        severities: Shares of the words that are changed.
        only: Names of perturbations; default: all that fit the task.
        seed: Seed of the noise.
        limit: Samples at most.
        tests: A file of one's own behaviour tests.
        dictionary: A dictionary for code switching.
        columns: Names of columns, {"text": "review"}.
        out: A folder for robustness.html and robustness.json.
    """
    loaded = run.loaded_run if isinstance(run, LoadedModel) else load(run).loaded_run
    options = RobustnessOptions(
        severities=tuple(severities),
        only=tuple(only),
        seed=seed,
        limit=limit,
        tests=None if tests is None else Path(tests),
        dictionary=None if dictionary is None else Path(dictionary),
    )
    with as_file(data) as path:
        report = measure_robustness(loaded, data=None if path is None else str(path), columns=columns, options=options)
    if out is not None:
        write_robustness(report, Path(out))
    return report


def label_noise(
    files: str | Path | Sequence[str | Path],
    *,
    run: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
    tags: bool = False,
) -> LabelNoiseReport:
    """Labels that are probably wrong, near duplicates across files, and planted triggers of labelled files.

    Args:
        files: Labelled files.
        run: A run whose column names and frozen embeddings are used; default: words and pairs of words.
        columns: Names of columns, {"text": "review", "label": "stars"}.
        folds: Folds of the cross-validation.
        seed: Seed of the folds.
        tags: Words with a tag each, in files whose name does not say so (.conll).
    """
    paths = [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]
    loaded = None if run is None else load(run).loaded_run
    return measure_label_noise(paths, run=loaded, columns=columns, folds=folds, seed=seed, tags=tags)


def exposure(
    run: str | Path,
    *,
    reference: str | Path | None = None,
    canaries: str | Path | None = None,
    quick: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    which: Literal["latest", "best"] | None = None,
    trust_paths: bool = False,
    console: Console | None = None,
) -> ExposureReport:
    """What a pretrained run gives away of its text: canary exposure, verbatim extraction, membership inference.

    Writes exposure.json, exposure.html and a section of the model card into the run's folder.

    Args:
        run: The run.
        reference: A run trained on other text, whose loss is subtracted in membership inference.
        canaries: A file such as another run's canaries.json; default: those the run was trained with
            (`corpus.canaries`).
        quick: Fewer candidates and passages, wider intervals.
        seed: Seed of the candidates and passages.
        out: A folder for the two files, in place of the run's.
        which: The checkpoint: latest or best.
        trust_paths: Read files that the recipe of somebody else's run names.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    if out is not None:
        check_out(Path(out))
    options = ExposureOptions(seed=seed)
    loaded_run = load_run(Path(run), which=which)
    report = measure_exposure(
        loaded_run,
        options.quick() if quick else options,
        console or TerminalConsole(stderr=True),
        reference=None if reference is None else load_run(Path(reference)),
        canary_path=None if canaries is None else Path(canaries),
        trust_paths=trust_paths,
    )
    write_exposure(report, loaded_run.run, None if out is None else Path(out))
    return report
