"""TensorBoard event files of a run; a disk that refuses them costs the events, not the run."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MISSING = 'TensorBoard is not installed; its events are not written (pip install "meristem[track]")'


class EventFiles:
    """Scalars written for TensorBoard; what an earlier start wrote after step `after` is forgotten."""

    def __init__(self, folder: Path, *, after: int, say: Callable[[str], None]) -> None:
        self._say = say
        self._writer: Any = None
        self._before = threading.excepthook
        if importlib.util.find_spec("tensorboard") is None:
            say(MISSING)
            return
        threading.excepthook = self._unless_of_tensorboard
        self._attempt(lambda: self._open(folder, after))

    def _open(self, folder: Path, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """The numbers among these values."""
        scalars = {f"{kind}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
        if self._writer is not None:
            self._attempt(lambda: self._add(scalars, step))

    def _add(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._attempt(self._writer.close)
        threading.excepthook = self._before

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            self._writer = None
            self._say(f"TensorBoard's events are not written from here on: {error.strerror or error}")

    def _unless_of_tensorboard(self, failure: Any) -> None:
        """An error of TensorBoard's own thread is raised again where the next event is added, so it is not printed."""
        if not (type(failure.thread).__module__.startswith("tensorboard.") and isinstance(failure.exc_value, OSError)):
            self._before(failure)
