"""Schedules: learning rate with warm-up (cosine, linear, inverse square root, constant then decay), weight decay."""

from __future__ import annotations

import math

from meristem.training.settings import TrainSettings


def warmup_steps(settings: TrainSettings, total: int) -> int:
    """Number of warm-up steps; a setting below 1 is a share of the `total` steps."""
    return round(settings.warmup * total) if settings.warmup < 1 else int(settings.warmup)


def lr_factor(settings: TrainSettings, step: int, total: int) -> float:
    """Learning rate at a step (0 … total − 1) divided by its peak."""
    warmup = warmup_steps(settings, total)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return settings.min_lr_ratio + (1 - settings.min_lr_ratio) * _decay_factor(settings, step, warmup, progress)


def _decay_factor(settings: TrainSettings, step: int, warmup: int, progress: float) -> float:
    match settings.schedule:
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            return 1 - progress
        case "inverse_sqrt":
            return math.sqrt(max(1, warmup) / max(1, step + 1, warmup))
        case "constant_then_decay":
            return min(1.0, (1 - progress) / settings.decay_fraction)
        case "constant":
            return 1.0


def weight_decay_factor(settings: TrainSettings, step: int, total: int) -> float:
    """Weight decay at a step (0 … total − 1) as a share of the setting."""
    return 1.0 if settings.weight_decay_schedule == "constant" else max(0.0, 1 - step / max(1, total))
