"""Light requests in work: long reading and long writing stand still while one is answered.

Threads that compute long work and threads that answer short requests would share the cores and the interpreter lock
at every operation, so that three milliseconds of work take fifty. A long job looks here between two passes instead, and
waits for a bounded time: light requests are quick, and however many there are, long work goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

CHARACTERS = 4096
"""Texts of one request that are light together."""
TOKENS = 256
"""Tokens asked for by one request that are light together."""
PAUSE = 0.02
"""Seconds that a pass of long work waits at the most."""


class LightRequests:
    """How many light requests are in work."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._count = 0

    @contextmanager
    def track(self, light: bool) -> Iterator[None]:
        """Count a request while it is answered, where it is light."""
        if light:
            with self._changed:
                self._count += 1
        try:
            yield
        finally:
            if light:
                with self._changed:
                    self._count -= 1
                    self._changed.notify_all()

    def wait(self) -> float:
        """Wait until no light request is in work, for a bounded time → the seconds waited."""
        if not self._count:
            return 0.0
        start = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: not self._count, PAUSE)
        return time.monotonic() - start
