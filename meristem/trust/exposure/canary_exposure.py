"""Exposure of every canary of a run, beside that of texts that were never planted."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from meristem.checkpoint.load_run import LoadedRun
from meristem.corpus.canaries.planting import Canary
from meristem.corpus.canaries.templates import CanaryTemplate, CanaryText
from meristem.generation.head_selection import LMKind
from meristem.metrics.proportion_intervals import Interval
from meristem.trust.exposure.canary_scores import score_texts
from meristem.trust.exposure.rank_exposure import CandidateDistribution
from meristem.utils.optional_packages import require_module
from meristem.utils.randomness import generator


@dataclass(frozen=True, kw_only=True)
class CanaryExposure:
    """The exposure of one canary, or of a text that was never planted."""

    text: str
    format: str
    repeats: int
    """0 if it was never planted."""
    logprob: float
    bits: float
    """Exposure; at most the logarithm of the number of texts its template makes."""
    max_bits: float
    rank: int
    """Among the candidates and itself."""
    estimated: bool
    """Whether it beats all candidates, so that its bits come from the fitted tail."""
    extracted: bool | None = None
    """Whether greedy decoding of the text before the secret gives the secret; None if that was not tried."""


@dataclass(frozen=True, kw_only=True)
class ExposureLevel:
    """The canaries that were planted equally often."""

    repeats: int
    canaries: int
    mean_bits: float
    interval: Interval
    """95 % interval of the mean over canaries (Student's t); the range of possible values for a single one."""
    extracted: int
    tried: int
    """Canaries of which extraction was tried."""


@dataclass(frozen=True, kw_only=True)
class TemplateFit:
    """The candidates of one template."""

    format: str
    space_size: int
    candidates: int
    distance: float
    """Largest difference between their distribution and the fitted skew-normal one."""


@dataclass(frozen=True, kw_only=True)
class CanaryMeasurement:
    """Canaries, controls and the fits that they were ranked with."""

    canaries: tuple[CanaryExposure, ...]
    controls: tuple[CanaryExposure, ...]
    fits: tuple[TemplateFit, ...]
    unreadable: tuple[str, ...]
    """Templates whose candidates the model cannot tell apart."""


def count_texts(canaries: Sequence[Canary], num_candidates: int, num_controls: int) -> int:
    """How many texts `measure_canaries` scores."""
    return len({canary.format for canary in canaries}) * num_candidates + num_controls + len(canaries)


def measure_canaries(
    loaded_run: LoadedRun,
    kind: LMKind,
    canaries: Sequence[Canary],
    *,
    num_candidates: int,
    num_controls: int,
    seed: int,
    progress: Callable[[int], None] = lambda scored: None,
) -> CanaryMeasurement:
    """Rank each canary, and texts that were never planted, among random texts of the same template."""
    by_format: dict[str, list[Canary]] = defaultdict(list)
    for canary in canaries:
        by_format[canary.format].append(canary)
    controls_per_format = np.bincount(np.arange(num_controls) % len(by_format), minlength=len(by_format)).tolist()
    measured: list[CanaryExposure] = []
    controls: list[CanaryExposure] = []
    fits, unreadable = [], []
    for (name, planted), num_own_controls in zip(by_format.items(), controls_per_format, strict=True):
        known = {canary.text for canary in planted}
        candidates = _draw(name, "exposure candidates", num_candidates, seed, known)
        unplanted = _draw(name, "exposure controls", num_own_controls, seed, known | {text for text, _ in candidates})
        own_texts = [CanaryText(canary.text, len(canary.prefix)) for canary in planted]
        logprobs = score_texts(loaded_run, kind, [*candidates, *own_texts, *unplanted], progress)
        distribution = CandidateDistribution(logprobs[: len(candidates)], planted[0].space_size)
        if distribution.is_constant:
            unreadable.append(name)
            continue
        repeats = [*(canary.repeats for canary in planted), *(0 for _ in unplanted)]
        exposures = [
            _exposure(text, name, count, float(logprob), distribution, planted[0].space_size)
            for text, count, logprob in zip([*own_texts, *unplanted], repeats, logprobs[len(candidates) :], strict=True)
        ]
        measured += exposures[: len(planted)]
        controls += exposures[len(planted) :]
        fits.append(
            TemplateFit(
                format=name,
                space_size=planted[0].space_size,
                candidates=len(candidates),
                distance=distribution.fit_distance,
            )
        )
    measured.sort(key=lambda item: (item.repeats, item.format))
    return CanaryMeasurement(
        canaries=tuple(measured), controls=tuple(controls), fits=tuple(fits), unreadable=tuple(unreadable)
    )


def _draw(name: str, purpose: str, count: int, seed: int, excluded: set[str]) -> list[CanaryText]:
    """Different random texts of a template that are not among the excluded ones."""
    template, rng = CanaryTemplate(name), generator(seed, f"{purpose} {name}", 0, 0)
    texts: dict[str, CanaryText] = {}
    max_texts = min(count, template.space_size - len(excluded))
    while len(texts) < max_texts:
        drawn = template.draw(rng)
        if drawn.text not in excluded:
            texts[drawn.text] = drawn
    return list(texts.values())


def _exposure(
    text: CanaryText, name: str, repeats: int, logprob: float, distribution: CandidateDistribution, space_size: int
) -> CanaryExposure:
    ranked = distribution.rank(logprob)
    return CanaryExposure(
        text=text.text,
        format=name,
        repeats=repeats,
        logprob=logprob,
        bits=ranked.bits,
        max_bits=math.log2(space_size),
        rank=ranked.rank,
        estimated=ranked.estimated,
    )


def summarize_levels(exposures: Iterable[CanaryExposure]) -> tuple[ExposureLevel, ...]:
    """Mean exposure by number of repeats."""
    by_repeats: dict[int, list[CanaryExposure]] = defaultdict(list)
    for exposure in exposures:
        by_repeats[exposure.repeats].append(exposure)
    levels = []
    for repeats, group in sorted(by_repeats.items()):
        bits = np.array([exposure.bits for exposure in group])
        tried = [exposure.extracted for exposure in group if exposure.extracted is not None]
        levels.append(
            ExposureLevel(
                repeats=repeats,
                canaries=len(group),
                mean_bits=float(bits.mean()),
                interval=_mean_interval(bits, max(exposure.max_bits for exposure in group)),
                extracted=sum(tried),
                tried=len(tried),
            )
        )
    return tuple(levels)


def _mean_interval(bits: np.ndarray[tuple[int], np.dtype[np.float64]], max_bits: float) -> Interval:
    """95 % interval of a mean, within the possible values."""
    if len(bits) < 2:
        return 0.0, max_bits
    students_t = require_module("scipy.stats", "exposure", "metrics", package="scipy").t
    half_width = float(students_t.ppf(0.975, len(bits) - 1) * bits.std(ddof=1) / math.sqrt(len(bits)))
    mean = float(bits.mean())
    return max(0.0, mean - half_width), min(max_bits, mean + half_width)
