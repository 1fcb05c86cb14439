"""SIGINT and SIGTERM: the first asks the loop to finish its step and save, the second leaves at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from meristem.errors import MeristemError
from meristem.interrupts import leave_at_once


class Stopped(MeristemError):
    """A run that was asked to stop, and saved first."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class Signals:
    """While it is entered, `received` holds the first signal; checkpoints are atomic, so a second may come any time."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            leave_at_once(number)
        self.received = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
