"""The learning rate as a function of the step."""

from __future__ import annotations

import math

from meristem.training.settings import TrainSettings


def warmup_steps(settings: TrainSettings, total: int) -> int:
    """The warm-up in steps, whether it was given as a share or as a number."""
    return round(settings.warmup * total) if settings.warmup < 1 else int(settings.warmup)


def factor(settings: TrainSettings, step: int, total: int) -> float:
    """The share of the peak rate at a step (0 … total − 1)."""
    warm = warmup_steps(settings, total)
    if step < warm:
        return (step + 1) / (warm + 1)
    share = min(1.0, (step - warm) / max(1, total - warm))
    return settings.floor + (1 - settings.floor) * _falling(settings, step, warm, share)


def _falling(settings: TrainSettings, step: int, warm: int, share: float) -> float:
    match settings.schedule:
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * share))
        case "linear":
            return 1 - share
        case "inverse_sqrt":
            return math.sqrt(max(1, warm) / max(1, step + 1, warm))
        case "constant_then_decay":
            return min(1.0, (1 - share) / settings.decay)
        case "constant":
            return 1.0
