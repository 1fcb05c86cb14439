"""Ctrl-C at moments that would lose it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unheard() -> Iterator[None]:
    """Ctrl-C is heard when this ends. While processes are begun it would be swallowed by what Python calls around a
    fork, or would leave a pool half begun that can neither work nor end."""
    if threading.current_thread() is not threading.main_thread():  # others never hear it
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if heard:
        signal.raise_signal(signal.SIGINT)
