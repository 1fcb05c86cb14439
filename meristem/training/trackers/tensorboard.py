"""TensorBoard event files of a run; if they cannot be written, the run continues without them."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from meristem.training.tracker import Tracker

NOT_INSTALLED = 'TensorBoard is not installed; no event files are written (pip install "meristem-lm[track]")'


class TensorBoardTracker(Tracker):
    """Writes scalars for TensorBoard; earlier events after step `last_step` are purged."""

    def __init__(self, folder: Path, *, last_step: int, log: Callable[[str], None]) -> None:
        self._log = log
        self._writer: Any = None
        self._previous_hook = threading.excepthook
        if importlib.util.find_spec("tensorboard") is None:
            log(NOT_INSTALLED)
            return
        threading.excepthook = self._thread_excepthook
        self._disable_on_error(lambda: self._open(folder, last_step))

    def _open(self, folder: Path, last_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=last_step + 1)

    def add_scalars(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write the values under `kind/name`."""
        scalars = {f"{kind}/{name}": value for name, value in values.items()}
        if self._writer is not None:
            self._disable_on_error(lambda: self._write_scalars(scalars, step))

    def _write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._disable_on_error(self._writer.close)
        threading.excepthook = self._previous_hook

    def _disable_on_error(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._writer = None
            self._log(f"TensorBoard events are no longer written: {error.strerror or error}")

    def _thread_excepthook(self, hook_args: Any) -> None:
        """Do not print an error of TensorBoard's thread: it is raised again when the next event is added."""
        if not (
            type(hook_args.thread).__module__.startswith("tensorboard.") and isinstance(hook_args.exc_value, OSError)
        ):
            self._previous_hook(hook_args)
