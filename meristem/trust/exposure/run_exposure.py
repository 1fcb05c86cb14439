"""Measures the exposure of a run: canaries, verbatim extraction and membership inference, in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console

from meristem.checkpoint.folder_layout import list_steps
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.provenance import refuse_foreign_data
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import PretrainRecipe
from meristem.corpus.canaries.planting import CANARY_FILE, Canary, read_canaries
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.evaluation.evaluate import run_datasets
from meristem.generation.head_selection import LMKind
from meristem.trust.exposure.canary_exposure import (
    CanaryExposure,
    CanaryMeasurement,
    count_texts,
    measure_canaries,
    summarize_levels,
)
from meristem.trust.exposure.canary_scores import is_trained_on_pairs, scoring_kind
from meristem.trust.exposure.continuations import ContinuationModel, Prompt
from meristem.trust.exposure.exposure_advice import make_advice
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.exposure_progress import ExposureProgress
from meristem.trust.exposure.exposure_report import CheckpointExposure, ExposureReport
from meristem.trust.exposure.extraction import Extraction, measure_extraction
from meristem.trust.exposure.membership import Membership, measure_membership

HELD_OUT_SPLITS = ("validation", "test")


@dataclass(frozen=True, kw_only=True)
class ExposureRun:
    """A run whose exposure is measured, its text and its canaries."""

    loaded_run: LoadedRun
    recipe: PretrainRecipe
    kind: LMKind
    datasets: Mapping[str, TokenDataset]
    canaries: Sequence[Canary]

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources of text, once per dataset: phases share one."""
        names = {dataset.folder: name for name, dataset in self.datasets.items()}
        return tuple(names.values())

    @property
    def epochs(self) -> float:
        """How often the training text was read."""
        num_tokens = sum(len(self.datasets[name].split("train")) for name in self.sources)
        return float(self.loaded_run.state.get("tokens", 0)) / max(1, num_tokens)

    @cached_property
    def canary_ids(self) -> set[tuple[int, ...]]:
        """The tokens of each canary, which is no passage of the text."""
        texts = [canary.text for canary in self.canaries]
        return {tuple(ids.tolist()) for ids in self.loaded_run.tokenizer.ids_each(texts)}

    def held_out(self, name: str) -> list[TokenStream]:
        """The held-out splits of a source."""
        return [self.datasets[name].split(split) for split in HELD_OUT_SPLITS if split in self.datasets[name].splits]


def open_exposure_run(
    loaded_run: LoadedRun, canary_path: Path | None, console: Console, *, trust_paths: bool
) -> ExposureRun:
    """The text and the canaries of a run; raises where nothing can be measured."""
    recipe, path = loaded_run.recipe, loaded_run.run.path
    if not isinstance(recipe, PretrainRecipe):
        raise MeristemError(
            f"{path} was not pretrained on text: measure the pretrained run it started from, whose text is known"
        )
    if not loaded_run.state.get("tokens"):
        raise MeristemError(f"{path} was imported, so the text it was trained on is not known")
    own_record = path / CANARY_FILE
    record = canary_path or (own_record if own_record.is_file() else None)
    canaries = [] if record is None else read_canaries(record)
    kind = scoring_kind(loaded_run, {name for canary in canaries for name in canary.sources} or recipe.objectives)
    refuse_foreign_data(loaded_run.run, recipe, trust_paths=trust_paths)
    return ExposureRun(
        loaded_run=loaded_run,
        recipe=recipe,
        kind=kind,
        datasets=run_datasets(loaded_run, console),
        canaries=canaries,
    )


def measure_exposure(
    loaded_run: LoadedRun,
    options: ExposureOptions,
    console: Console,
    *,
    reference: LoadedRun | None = None,
    canary_path: Path | None = None,
    trust_paths: bool = False,
) -> ExposureReport:
    """The report of a run; the same options and seed give the same numbers."""
    exposure_run = open_exposure_run(loaded_run, canary_path, console, trust_paths=trust_paths)
    scored_reference = None if reference is None else (reference, _reference_kind(exposure_run, reference))
    notes: list[str] = []
    with ExposureProgress(console) as progress:
        measured = _measure_canaries(exposure_run, options, progress, notes)
        checkpoints = _measure_checkpoints(exposure_run, options, progress, measured)
        extraction = _measure_extraction(exposure_run, options, progress, notes)
        membership = _measure_membership(exposure_run, options, progress, notes, scored_reference)
    report = ExposureReport(
        run=str(loaded_run.run.path),
        step=loaded_run.step,
        kind=exposure_run.kind,
        epochs=exposure_run.epochs,
        levels=summarize_levels(measured.canaries) if measured else (),
        control=next(iter(summarize_levels(measured.controls)), None) if measured else None,
        canaries=measured.canaries if measured else (),
        controls=measured.controls if measured else (),
        fits=measured.fits if measured else (),
        checkpoints=checkpoints,
        extraction=extraction,
        membership=membership,
        notes=tuple(notes),
        options=options,
    )
    return report.with_advice(make_advice(report))


def _reference_kind(exposure_run: ExposureRun, reference: LoadedRun) -> LMKind:
    """How the reference model scores passages; raises if it was trained on the same text."""
    recipe = reference.recipe
    if isinstance(recipe, PretrainRecipe):
        own_corpora = [source.corpus.without_canaries for source in exposure_run.recipe.sources()]
        if any(source.corpus.without_canaries in own_corpora for source in recipe.sources()):
            raise RecipeError(
                f"--reference: {reference.run.path} was trained on the same text, so that subtracting its scores hides "
                "what is to be found; train one on other text, or on the other half: corpus.half=0 and corpus.half=1"
            )
        return scoring_kind(reference, recipe.objectives)
    return scoring_kind(reference, ())


def _measure_canaries(
    exposure_run: ExposureRun, options: ExposureOptions, progress: ExposureProgress, notes: list[str]
) -> CanaryMeasurement | None:
    """Exposure and extraction of the canaries; None if the run has none."""
    canaries, loaded_run = exposure_run.canaries, exposure_run.loaded_run
    if not canaries:
        notes.append("no canaries were planted: train with corpus.canaries=true to measure their exposure")
        return None
    total = count_texts(canaries, options.candidates, options.controls)
    measured = measure_canaries(
        loaded_run,
        exposure_run.kind,
        canaries,
        num_candidates=options.candidates,
        num_controls=options.controls,
        seed=options.seed,
        progress=progress.start_stage("Scoring canaries and candidates", total),
    )
    for name in measured.unreadable:
        notes.append(f"the tokenizer has no tokens for what differs between texts of {name!r}: left out")
    if not measured.canaries:
        raise MeristemError(
            f"{loaded_run.run.path}: its tokenizer tells no two canaries apart; choose corpus.canaries.formats in the "
            "script of the text"
        )
    return replace(measured, canaries=_extract_canaries(exposure_run, measured.canaries, options, progress))


def _extract_canaries(
    exposure_run: ExposureRun,
    exposures: Sequence[CanaryExposure],
    options: ExposureOptions,
    progress: ExposureProgress,
) -> tuple[CanaryExposure, ...]:
    """The exposures, with whether greedy decoding of the text before the secret gives the secret."""
    tokenizer = exposure_run.loaded_run.tokenizer
    model = ContinuationModel(exposure_run.loaded_run, exposure_run.kind, seed=options.seed)
    by_text = {canary.text: canary for canary in exposure_run.canaries}
    prompts = []
    for exposure in exposures:
        prefix = by_text[exposure.text].prefix.rstrip()
        secret_tokens = len(tokenizer.ids_each([exposure.text])[0]) - len(tokenizer.ids_each([prefix])[0])
        prompts.append(Prompt(text=prefix, num_tokens=max(1, secret_tokens)))
    if any(not prompt.text for prompt in prompts):
        return tuple(exposures)
    texts = model.continue_all(prompts, 0, progress.start_stage("Extracting canaries", len(prompts)))
    return tuple(
        replace(exposure, extracted=_begins_with(greedy[0].text, by_text[exposure.text].secret))
        for exposure, greedy in zip(exposures, texts, strict=True)
    )


def _begins_with(text: str, secret: str) -> bool:
    """Whether a text begins with a secret, up to spaces, case and the punctuation after it."""
    squeezed_text, squeezed_secret = ("".join(value.split()).casefold() for value in (text, secret))
    return squeezed_text.startswith(squeezed_secret.rstrip(".。"))


def _measure_checkpoints(
    exposure_run: ExposureRun,
    options: ExposureOptions,
    progress: ExposureProgress,
    measured: CanaryMeasurement | None,
) -> tuple[CheckpointExposure, ...]:
    """Mean exposure at earlier checkpoints, with fewer candidates, and at this one."""
    loaded_run = exposure_run.loaded_run
    steps = [step for step in sorted(list_steps(loaded_run.run.checkpoints)) if step < loaded_run.step]
    if measured is None or not steps or not options.max_checkpoints:
        return ()
    count = min(len(steps), options.max_checkpoints)
    chosen = [steps[index] for index in np.linspace(0, len(steps) - 1, count).round().astype(int).tolist()]
    per_checkpoint = count_texts(exposure_run.canaries, options.checkpoint_candidates, 0)
    advance = progress.start_stage("Scoring canaries at earlier checkpoints", per_checkpoint * count)
    curve = []
    for step in chosen:
        earlier = measure_canaries(
            load_run(loaded_run.run.path, step=step),
            exposure_run.kind,
            exposure_run.canaries,
            num_candidates=options.checkpoint_candidates,
            num_controls=0,
            seed=options.seed,
            progress=advance,
        )
        curve.append(CheckpointExposure(step=step, levels=summarize_levels(earlier.canaries)))
    return (*curve, CheckpointExposure(step=loaded_run.step, levels=summarize_levels(measured.canaries)))


def _measure_extraction(
    exposure_run: ExposureRun, options: ExposureOptions, progress: ExposureProgress, notes: list[str]
) -> tuple[Extraction, ...]:
    """Verbatim extraction of each source of plain text."""
    model = ContinuationModel(exposure_run.loaded_run, exposure_run.kind, seed=options.seed)
    results = []
    for name in exposure_run.sources:
        stream, skipped = exposure_run.datasets[name].split("train"), exposure_run.canary_ids
        if reason := _not_text(exposure_run, name):
            notes.append(f"extraction of {name}: {reason}")
            continue
        held_out = exposure_run.held_out(name)
        advance = progress.start_stage(f"Continuing passages of {name}", options.prefixes * (1 + bool(held_out)))
        result = measure_extraction(model, name, stream, held_out, options, skipped, advance)
        if result is None:
            notes.append(f"extraction of {name}: its documents are too short to be continued")
        else:
            results.append(result)
    return tuple(results)


def _measure_membership(
    exposure_run: ExposureRun,
    options: ExposureOptions,
    progress: ExposureProgress,
    notes: list[str],
    reference: tuple[LoadedRun, LMKind] | None,
) -> tuple[Membership, ...]:
    """Membership inference on each source of plain text."""
    results = []
    for name in exposure_run.sources:
        stream, skipped = exposure_run.datasets[name].split("train"), exposure_run.canary_ids
        if reason := _not_text(exposure_run, name):
            notes.append(f"membership inference of {name}: {reason}")
            continue
        total = 2 * options.members * (1 + (reference is not None))
        result = measure_membership(
            exposure_run.loaded_run,
            exposure_run.kind,
            name,
            stream,
            exposure_run.held_out(name),
            options,
            skipped,
            progress.start_stage(f"Scoring passages of {name}", total),
            reference,
        )
        if result is None:
            notes.append(f"membership inference of {name}: too little held-out text, or documents too short")
        else:
            results.append(result)
    return tuple(results)


def _not_text(exposure_run: ExposureRun, name: str) -> str:
    """Why a source is not measured as plain text; empty if it is."""
    stream = exposure_run.datasets[name].split("train")
    if stream.has_images:
        return "its documents are images with captions"
    if stream.has_pairs or is_trained_on_pairs(exposure_run.loaded_run, exposure_run.kind):
        return "its documents are pairs, and a target that follows from its source is no sign of memorisation"
    return ""
