"""Metrics as text: `name value` with four significant digits."""

from __future__ import annotations

import math
from collections.abc import Mapping


def format_metrics_line(metrics: Mapping[str, float]) -> str:
    """Metrics as one line of text."""
    return "  ".join(format_metrics(metrics))


def format_metrics(metrics: Mapping[str, float]) -> list[str]:
    """Each metric as `name value`."""
    return [f"{name} {_format_number(value)}" for name, value in metrics.items()]


def _format_number(value: float) -> str:
    """Four significant digits; `none` for NaN."""
    if math.isnan(value):
        return "none"
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3e}"
