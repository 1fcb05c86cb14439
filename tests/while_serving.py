"""Runs `meristem serve` or `meristem studio` in this process while a thread sends requests to it."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from cli_runner import CommandResult, Meristem

START_SECONDS = 60


def while_serving(meristem: Meristem, words: list[str], ask: Callable[[str], None]) -> CommandResult:
    """Run a serving command on a free port, call `ask` with its address once it answers, and stop it with SIGTERM, as a
    service manager would; raises what `ask` raises."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    errors: list[Exception] = []

    def ask_and_stop() -> None:
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(address)
            ask(address)
        except Exception as error:
            errors.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    client, interval = threading.Thread(target=ask_and_stop), sys.getswitchinterval()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}  # uvloop leaves its own
    thresholds = gc.get_threshold()
    client.start()
    try:
        result = meristem(*words, "--port", port)
    finally:
        client.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    if errors:
        raise errors[0]
    assert result.code == 143, result.err
    return result


def _wait_until_ready(address: str) -> None:
    for _ in range(START_SECONDS * 10):
        try:
            urllib.request.urlopen(f"{address}/health/ready").close()
            return
        except urllib.error.URLError:  # it does not listen yet, or still loads
            time.sleep(0.1)
    raise TimeoutError(f"{address} did not start")
