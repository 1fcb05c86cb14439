"""Ctrl-C waits where it would be lost, and is heard afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from meristem.utils.interrupts import defer_interrupts


def test_it_is_heard_when_all_is_done() -> None:
    events = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        events.append("whole")
    assert events == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_heard_where_nothing_was_said() -> None:
    with defer_interrupts():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_goes_before_it() -> None:
    with pytest.raises(ValueError, match="broken"), defer_interrupts():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_threads_leave_signals_alone() -> None:
    results: list[bool] = []

    def enter() -> None:
        with defer_interrupts():
            results.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert results == [True]


BLOCKED = """
import os, sys, time
os.environ.update(WORLD_SIZE="2", RANK="1")
from meristem.cli import app as cli
from meristem.config.errors import MeristemError

class ProcessGroup:
    def __del__(self):
        time.sleep(600)  # waits for processes that are gone

def run():
    group = ProcessGroup()
    raise {error}

cli._run_app = run
sys.argv = ["meristem"]
cli.main()
"""


@pytest.mark.parametrize(("error", "code"), [("MeristemError('x')", 1), ("KeyboardInterrupt", 130)])
def test_a_failed_process_of_several_does_not_free_its_process_group(error: str, code: int) -> None:
    command = [sys.executable, "-c", BLOCKED.format(error=error)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == code, completed.stderr


IMPORTING = """
import importlib.abc, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["meristem", "--version"]
from meristem.cli import main
main()
"""


def test_an_interrupt_while_modules_are_imported_shows_no_traceback() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "meristem: stopped\n")
