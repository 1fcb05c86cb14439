"""Base class of experiment trackers, which send the metrics of a run elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from meristem.config.registry import ComponentKind, Registry


class Tracker(ABC):
    """Receives the numbers of one run, on rank 0; one that raises an exception is left out from then on."""

    @abstractmethod
    def __init__(self, folder: Path, *, last_step: int, log: Callable[[str], None]) -> None:
        """The run's folder, the step it resumes from, and a function that writes to its log."""

    @abstractmethod
    def add_scalars(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Record the numbers of a line of metrics.jsonl; `kind` is train, validation, …"""

    @abstractmethod
    def close(self) -> None:
        """Flush and close; called once, also after an error."""


TRACKERS: Registry[Tracker] = Registry(ComponentKind.TRACKER, Tracker)  # type: ignore[type-abstract]
"""Trackers by name: `TRACKERS["tensorboard"]` is the class in training/trackers/tensorboard.py."""
