"""A thread that works on whatever has come, and sleeps when there is nothing."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any

import torch


class Worker(ABC):
    """One thread, which alone computes with what it holds; it may be started again after it was stopped."""

    name: str

    def __init__(self, threads: int | None) -> None:
        """`threads` are those that torch computes with; as many as it takes by itself where none are told."""
        self._threads = threads
        self._changed = Condition()
        self._stopping = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin to work."""
        self._stopping = False
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after what is being computed."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=30)

    @property
    def alive(self) -> bool:
        """Whether it works."""
        return self._thread is not None and self._thread.is_alive() and not self._stopping

    @abstractmethod
    def busy(self) -> bool:
        """Whether there is anything to do."""

    @abstractmethod
    def work(self) -> None:
        """Do a little of it."""

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
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
