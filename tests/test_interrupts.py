"""Ctrl-C waits where it would be lost, and is heard afterwards."""

from __future__ import annotations

import signal
import threading

import pytest

from meristem.interrupts import unheard


def test_it_is_heard_when_all_is_done() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), unheard():
        signal.raise_signal(signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_heard_where_nothing_was_said() -> None:
    with unheard():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_goes_before_it() -> None:
    with pytest.raises(ValueError, match="broken"), unheard():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_threads_leave_signals_alone() -> None:
    found: list[bool] = []

    def begin() -> None:
        with unheard():
            found.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert found == [True]
