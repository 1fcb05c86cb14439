"""Worker threads that wait on a condition until there is work."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Condition, RLock, Thread
from typing import Any

import torch


class WorkerThreads(ABC):
    """One or several threads, each using one torch thread; can be restarted after `stop`.

    Several threads with a batch each use as many cores as one batch split by torch's intra-op threads, and never wait
    for each other, which matters on a shared machine.
    """

    name: str

    def __init__(self, threads: int = 1) -> None:
        self._num_threads = threads
        self._lock = RLock()
        self._condition = Condition(self._lock)
        self._stopping = False
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the threads."""
        self._stopping = False
        self._threads = []
        for _ in range(self._num_threads):
            self._start_thread()

    def _start_thread(self) -> None:
        """Start one more thread."""
        thread = Thread(target=self._run, name=self.name, daemon=True)
        thread.start()  # before it is in the list: a thread that was not started cannot be joined
        self._threads.append(thread)

    def stop(self) -> None:
        """Stop the threads after their current step."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(timeout=30)

    @property
    def is_alive(self) -> bool:
        """Whether all threads are running."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads) and not self._stopping

    @abstractmethod
    def has_work(self) -> bool:
        """Whether there is anything to do."""

    @abstractmethod
    def run_once(self) -> None:
        """Do one unit of work, such as a batch."""

    def _run(self) -> None:
        torch.set_num_threads(1)
        while True:
            with self._condition:
                while not (self._stopping or self.has_work()):
                    self._condition.wait()
                if self._stopping:
                    return
            self.run_once()


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    """Call a function in the thread of an event loop; ignored if the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, *arguments)
