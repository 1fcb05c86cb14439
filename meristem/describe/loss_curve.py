"""Loss curve: the validation loss that a budget in FLOPs can be expected to reach, from recorded runs, and how sure.

The curve is L = a + b · C^−c (Kaplan et al. 2020, Hoffmann et al. 2022), fitted to the best recipe of each budget in
the record table. `python -m benchmarks.records page` writes the points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meristem.utils.optional_packages import require_module

POINTS = Path(__file__).with_name("record_points.json")
MIN_POINTS = 4
"""The curve has three parameters: with fewer points its errors cannot be estimated."""
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """The best recorded recipe of one budget."""

    track: str
    """Training text: a track of the record table."""
    kind: str
    """encoder, causal or encoder-decoder."""
    label: str
    flops: float
    loss: float
    seeds: int


@dataclass(frozen=True, kw_only=True)
class ExpectedLoss:
    """A loss with its prediction interval, or the reason why there is none."""

    loss: float | None
    low: float | None
    high: float | None
    points: int
    note: str


def read_points(path: Path = POINTS) -> list[LossPoint]:
    """The recorded points."""
    return [LossPoint(**point) for point in json.loads(path.read_text(encoding="utf-8"))]


def expected_loss(points: Sequence[LossPoint], kind: str, track: str, flops: float) -> ExpectedLoss:
    """The loss expected of a kind of model after so many FLOPs on text like that of a track."""
    curve_points = [point for point in points if (point.kind, point.track) == (kind, track)]
    budgets = {point.flops for point in curve_points}
    if len(budgets) < MIN_POINTS:
        note = f"{len(budgets)} recorded budgets on {track}; a curve needs {MIN_POINTS}"
        return ExpectedLoss(loss=None, low=None, high=None, points=len(budgets), note=note)
    loss, half_width = _predict(curve_points, flops)
    largest = max(budgets)
    beyond = f", {flops / largest:.1f}× beyond the largest" if flops > largest else ""
    note = f"{len(budgets)} recorded budgets on {track}{beyond}"
    return ExpectedLoss(loss=loss, low=loss - half_width, high=loss + half_width, points=len(budgets), note=note)


def _predict(points: Sequence[LossPoint], flops: float) -> tuple[float, float]:
    """The loss on the fitted curve, and half the width of its prediction interval."""
    optimize = require_module("scipy.optimize", "a loss curve", "metrics", package="SciPy")
    stats = require_module("scipy.stats", "a loss curve", "metrics", package="SciPy")
    losses = np.array([point.loss for point in points])
    scale = math.exp(float(np.mean([math.log(point.flops) for point in points])))  # the fit is in units near 1
    budgets = np.array([point.flops for point in points]) / scale
    start = (0.8 * losses.min(), 0.2 * losses.min() + 1e-6, 0.2)
    bounds = ([0.0, 0.0, 0.01], [losses.min(), np.inf, 2.0])
    parameters, covariance = optimize.curve_fit(_curve, budgets, losses, p0=start, bounds=bounds, maxfev=20_000)
    degrees = max(1, len(points) - len(parameters))
    residual_variance = float(np.square(losses - _curve(budgets, *parameters)).sum()) / degrees
    a, b, c = parameters
    power = (flops / scale) ** -c
    gradient = np.array([1.0, power, -b * math.log(flops / scale) * power])
    variance = float(gradient @ covariance @ gradient) + residual_variance
    half_width = float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees)) * math.sqrt(variance)
    return float(a + b * power), half_width


def _curve(budgets: Any, a: float, b: float, c: float) -> Any:
    return a + b * budgets**-c


def points_to_json(points: Sequence[LossPoint]) -> str:
    """The content of the points file."""
    rows: list[Mapping[str, Any]] = [vars(point) for point in points]
    return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
