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
    """How a fine-tuned run fails on noisy and hostile input; `data` is labelled, by default its held-out samples.

    `severities` are the shares of the words that are changed, `only` names of perturbations, `tests` a file of one's
    own tests, `dictionary` one for code switching; `out` is a folder for robustness.html and robustness.json.
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
) -> LabelNoiseReport:
    """Labels that are probably wrong, near duplicates across files, and planted triggers of labelled files.

    With a `run` its column names and its frozen embeddings are used, otherwise words and pairs of words.
    """
    paths = [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]
    loaded = None if run is None else load(run).loaded_run
    return measure_label_noise(paths, run=loaded, columns=columns, folds=folds, seed=seed)


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

    `reference` is a run trained on other text, whose loss is subtracted in membership inference. `canaries` is a file
    such as another run's canaries.json; default: those the run was trained with (`corpus.canaries`). Writes
    exposure.json, exposure.html and a section of the model card into the run's folder, or the files into `out`.
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
