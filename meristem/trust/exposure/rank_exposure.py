"""Exposure of a canary (Carlini et al. 2019): log2 |R| - log2 rank among the |R| texts of its template.

|R| is far too large to score all, so the share of texts that are at least as probable is estimated: from random
candidates, and where the canary beats all of them from the tail of a skew-normal distribution fitted to their
log-probabilities. A text that the model never saw has a uniform rank, and so a mean exposure of 1 / ln 2 = 1.44 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meristem.generation.token_scores import Floats
from meristem.utils.optional_packages import require_module

EXPECTED_UNSEEN_BITS = 1 / math.log(2)
"""Mean exposure of texts that the model never saw."""
MAX_SHAPE = 6.0
"""Steepest side of the fitted distribution: with a greater shape it would end there, and any text beyond it would get
the largest exposure."""
TAIL_WIDTH, TAIL_POINTS = 40.0, 20_001
"""Standard deviations beyond the canary over which the tail is integrated, and the number of points."""


@dataclass(frozen=True, kw_only=True)
class RankedCanary:
    """The exposure of one text."""

    bits: float
    rank: int
    """Among the candidates and itself: 1 if it beats all."""
    estimated: bool
    """Whether it beats all candidates, so that the bits come from the fitted tail."""


class CandidateDistribution:
    """Log-probabilities of random texts of one template, and the skew-normal distribution fitted to them."""

    def __init__(self, logprobs: Floats, space_size: int) -> None:
        self._sorted, self._max_bits = np.sort(logprobs), math.log2(space_size)
        self._fit: tuple[float, float, float] | None = None
        self.is_constant = bool(self._sorted[-1] - self._sorted[0] < 1e-9)
        """Whether the model cannot tell the candidates apart: all characters that differ are unknown to it."""

    @property
    def fit(self) -> tuple[float, float, float]:
        """Shape, location and scale of the skew-normal distribution, by maximum likelihood."""
        if self._fit is None:
            shape, location, scale = _skewnorm().fit(self._sorted)
            if abs(shape) > MAX_SHAPE:
                shape, location, scale = _skewnorm().fit(self._sorted, fa=math.copysign(MAX_SHAPE, shape))
            self._fit = (float(shape), float(location), float(scale))
        return self._fit

    @property
    def fit_distance(self) -> float:
        """The largest difference between the fitted and the observed distribution (Kolmogorov-Smirnov)."""
        expected = _skewnorm().cdf(self._sorted, *self.fit)
        steps = np.arange(len(self._sorted) + 1) / len(self._sorted)
        return float(max(np.max(expected - steps[:-1]), np.max(steps[1:] - expected)))

    def rank(self, logprob: float) -> RankedCanary:
        """The exposure of a text with this log-probability; of candidates with the same one, half count as better."""
        first, last = (int(np.searchsorted(self._sorted, logprob, side=side)) for side in ("left", "right"))
        num_candidates = len(self._sorted)
        better = num_candidates - last + (last - first) / 2
        bits = -math.log2((better + 1) / (num_candidates + 1))
        is_best = better == 0
        if is_best:
            bits = max(bits, self.tail_bits(logprob))
        return RankedCanary(bits=min(bits, self._max_bits), rank=math.floor(better) + 1, estimated=is_best)

    def tail_bits(self, logprob: float) -> float:
        """-log2 of the fitted probability of a value above this one, integrated where 1 - cdf would be 0."""
        shape, location, scale = self.fit
        points = logprob + scale * np.linspace(0.0, TAIL_WIDTH, TAIL_POINTS)
        log_density = _skewnorm().logpdf(points, shape, location, scale)
        top = float(np.max(log_density))
        if not math.isfinite(top):
            return math.inf
        integral = float(np.trapezoid(np.exp(log_density - top), points))
        return -(top + math.log(integral)) / math.log(2) if integral > 0 else math.inf


def _skewnorm() -> Any:
    return require_module("scipy.stats", "exposure", "metrics", package="scipy").skewnorm
