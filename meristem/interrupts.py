"""Ctrl-C: kept where it would be lost, and a second one that ends the process without a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn


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


class _State:
    """How often Ctrl-C was pressed in this process, and whether it has been said that it stops."""

    process = 0
    pressed = False
    announced = False


def install_handler() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt and the next one end the process, without a traceback.

    A traceback is what Python shows when one comes while the first is being handled, or while the process ends.
    """
    _State.process, _State.pressed, _State.announced = os.getpid(), False, False
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a job in the background leaves it to others
    if ignored or threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGINT, _handle)
    sys.unraisablehook = _unraisable


def _handle(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _State.process:  # a worker that has not yet begun: its parent decides
        os._exit(128 + number)
    if _State.pressed:
        leave_at_once(number)
    _State.pressed = True
    raise KeyboardInterrupt


def was_pressed() -> bool:
    """Whether Ctrl-C came: a library may have made another error of it."""
    return _State.pressed


def ending() -> None:
    """From here on nothing is left to be interrupted: Ctrl-C ends the process at once, and silently."""
    _State.pressed = _State.announced = True


def announce() -> None:
    """Say once that the command stops."""
    if not _State.announced:
        _State.announced = True
        with suppress(OSError, ValueError):
            print("meristem: stopped", file=sys.stderr, flush=True)


def leave_at_once(number: int) -> NoReturn:
    """End the process, wherever it is: one line, and a cursor that a progress bar may have hidden is shown again."""
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h\n")
        if not _State.announced:
            os.write(2, b"meristem: stopped at once\n")
    os._exit(128 + number)


def _unraisable(unraisable: sys.UnraisableHookArgs, /) -> None:
    """Python ignores an exception inside `__del__` and the like, with a traceback; Ctrl-C needs none."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
