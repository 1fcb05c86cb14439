"""Handling of Ctrl-C (SIGINT): deferred where it would be lost; a second one ends the process without a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeVar

CHECK_INTERVAL = 0.2
"""Seconds between two checks while `run_interruptibly` waits."""
Result = TypeVar("Result")


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block. While processes are being started it would be swallowed by Python's fork
    hooks, or leave a half-started pool that can neither work nor terminate."""
    if threading.current_thread() is not threading.main_thread():  # other threads never receive it
        yield
        return
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if previous_handler is None else previous_handler)
    if received:
        signal.raise_signal(signal.SIGINT)


def run_interruptibly(function: Callable[[], Result], check: Callable[[], None]) -> Result:
    """The result of a function that blocks in C++, where Python handles no signal until it returns.

    It runs in a daemon thread while this one waits: Ctrl-C raises here at once, and so does `check`, which is called
    several times a second. The thread is then left behind, blocked, and ends with the process.
    """
    outcome: Future[Result] = Future()

    def call() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(CHECK_INTERVAL)
        check()
    return outcome.result()


class _InterruptState:
    """Whether Ctrl-C was pressed in this process, and whether the stop was announced."""

    process = 0
    pressed = False
    announced = False


def install_handler() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt and the next one end the process, without a traceback.

    By default Python prints a traceback if one arrives while the first is being handled, or during exit.
    """
    _InterruptState.process, _InterruptState.pressed, _InterruptState.announced = os.getpid(), False, False
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a background job ignores it
    if ignored or threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGINT, _handle)
    sys.unraisablehook = _handle_unraisable


def _handle(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _InterruptState.process:  # a forked worker that has not started yet: its parent decides
        os._exit(128 + number)
    if _InterruptState.pressed:
        exit_immediately(number)
    _InterruptState.pressed = True
    raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed: a library may have turned it into another error."""
    return _InterruptState.pressed


def mark_exiting() -> None:
    """The command is done: from now on Ctrl-C ends the process at once and silently."""
    _InterruptState.pressed = _InterruptState.announced = True


def announce_stop() -> None:
    """Print once that the command was stopped."""
    if not _InterruptState.announced:
        _InterruptState.announced = True
        with suppress(OSError, ValueError):
            print("meristem: stopped", file=sys.stderr, flush=True)


def exit_immediately(number: int) -> NoReturn:
    """End the process immediately: print one line, and show the cursor that a progress bar may have hidden."""
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h\n")
        if not _InterruptState.announced:
            os.write(2, b"meristem: stopped immediately\n")
    os._exit(128 + number)


def _handle_unraisable(unraisable: sys.UnraisableHookArgs, /) -> None:
    """Suppress Python's traceback for a KeyboardInterrupt inside `__del__` and the like."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
