"""Stop signals (SIGINT, SIGTERM): the first lets the loop finish its step and save, the second exits immediately."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from meristem.config.errors import MeristemError
from meristem.utils.interrupts import exit_immediately


class TrainingStopped(MeristemError):
    """Raised after a signal, once a checkpoint has been saved."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class StopSignals:
    """Context in which `received` is the first signal, if any; a second one is safe at any time, saves being atomic."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signal_number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[signal_number] = signal.signal(signal_number, self._handle)
        return self

    def _handle(self, signal_number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            exit_immediately(signal_number)
        self.received = signal_number

    def __exit__(self, *exception: object) -> None:
        for signal_number, handler in self._previous_handlers.items():
            signal.signal(signal_number, handler)
