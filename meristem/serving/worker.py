"""Threads that work on whatever has come, and sleep when there is nothing."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Condition, RLock, Thread
from typing import Any

import torch


class Worker(ABC):
    """One thread or several, each computing by itself; it may be started again after it was stopped.

    Several that take a batch each keep as many cores busy as one whose batches are cut up, and never wait for each
    other: on a machine that is shared that makes all the difference.
    """

    name: str

    def __init__(self, threads: int = 1) -> None:
        self._count = threads
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._stopping = False
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Begin to work."""
        self._stopping = False
        self._threads = []
        for _ in range(self._count):
            self._spawn()

    def _spawn(self) -> None:
        """One more thread."""
        thread = Thread(target=self._run, name=self.name, daemon=True)
        thread.start()  # before it is in the list: one that has not begun cannot be joined
        self._threads.append(thread)

    def stop(self) -> None:
        """End after what is being computed."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=30)

    @property
    def alive(self) -> bool:
        """Whether all of them work."""
        return bool(self._threads) and all(one.is_alive() for one in self._threads) and not self._stopping

    @abstractmethod
    def busy(self) -> bool:
        """Whether there is anything to do."""

    @abstractmethod
    def work(self) -> None:
        """Do a little of it."""

    def _run(self) -> None:
        torch.set_num_threads(1)
        while True:
            with self._changed:
                while not (self._stopping or self.busy()):
                    self._changed.wait()
                if self._stopping:
                    return
            self.work()


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    """Call something in the loop's own thread; one that is closed has nobody left who waits."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *arguments)
