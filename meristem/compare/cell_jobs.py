"""Jobs of a comparison: cells and scores, one after the other or in several processes, with the time that is left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.training.stop_signals import StopSignals, TrainingStopped

CHECK_SECONDS = 0.5
"""Interval in which signals, and the parent of a worker, are looked for."""


def default_parallel() -> int:
    """As many jobs at once as this process may use cores; one on a machine with an accelerator."""
    import torch

    if torch.accelerator.is_available():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """A piece of work that leaves its result in a run folder."""

    name: str
    kind: str
    """Jobs of one kind take about the same time."""
    function: Callable[..., object]
    arguments: tuple[Any, ...]


@dataclass
class JobProgress:
    """Jobs done, and the time left by the minutes of those that ran."""

    console: Console
    planned: dict[str, int]
    """Kind → jobs of it that have not been done."""
    parallel: int = 1
    minutes: dict[str, list[float]] = field(default_factory=dict)
    started: int = 0
    """Jobs that were started, or need not be."""
    errors: dict[str, str] = field(default_factory=dict)
    """Why jobs failed, by their names."""

    def __post_init__(self) -> None:
        self.total = sum(self.planned.values())

    def skip(self, kind: str, count: int = 1) -> None:
        """Count jobs that had been done before, or cannot be done."""
        self.planned[kind] = max(0, self.planned[kind] - count)

    def start(self, job: CellJob) -> None:
        """Say which job starts, and how long all of them will take."""
        self.started = max(self.started, self.total - sum(self.planned.values())) + 1
        self._print(f"Job {self.started} of {self.total}: {job.name}{self._time_left()}")

    def finish(self, job: CellJob, outcome: JobOutcome) -> None:
        """Count a job; a failed one is reported and does not stop the others, a stopped one does."""
        self.skip(job.kind)
        if outcome.signal_number is not None:
            raise TrainingStopped(outcome.signal_number, str(outcome.error))
        if outcome.error is not None:
            self.errors[job.name] = outcome.error
            self._print(f"{job.name} failed: {outcome.error}")
            return
        self.minutes.setdefault(job.kind, []).append(outcome.minutes)

    def _time_left(self) -> str:
        every = [minutes for of_kind in self.minutes.values() for minutes in of_kind]
        if not every:
            return ""
        means = {kind: sum(times) / len(times) for kind, times in self.minutes.items()}
        overall = sum(every) / len(every)
        left = sum(count * means.get(kind, overall) for kind, count in self.planned.items()) / self.parallel
        return f", about {left:.0f} min left" if left >= 1 else ", less than a minute left"

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """How a job ended."""

    minutes: float
    error: str | None = None
    signal_number: int | None = None
    """The signal that stopped it."""


@contextmanager
def job_pool(parallel: int) -> Iterator[ProcessPoolExecutor | None]:
    """Worker processes; None for one job at a time, in this process."""
    if parallel <= 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(parallel, mp_context=context, initializer=_start_worker, initargs=(os.getpid(),))
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGTERM)  # a run that is training saves and ends
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def run_jobs(jobs: Sequence[CellJob], pool: ProcessPoolExecutor | None, progress: JobProgress) -> None:
    """Run all jobs; one that fails is reported and left out, a signal stops all."""
    if pool is None:
        for job in jobs:
            progress.start(job)
            progress.finish(job, _run_job(job))
        return
    waiting, running = list(jobs), dict[Future[JobOutcome], CellJob]()
    with StopSignals() as signals:
        while waiting or running:
            while waiting and len(running) < progress.parallel:
                job = waiting.pop(0)
                progress.start(job)
                running[pool.submit(_run_job, job)] = job
            for future in wait(running, timeout=CHECK_SECONDS, return_when=FIRST_COMPLETED).done:
                progress.finish(running[future], _outcome(future, running.pop(future)))
            if signals.received is not None:
                raise TrainingStopped(signals.received, "stopped; the same command resumes")


def _outcome(future: Future[JobOutcome], job: CellJob) -> JobOutcome:
    try:
        return future.result()
    except BrokenProcessPool:
        raise MeristemError(
            f"{job.name}: a worker process was killed, perhaps for lack of memory; the same command resumes "
            "(one cell at a time: --parallel 1)"
        ) from None


def _run_job(job: CellJob) -> JobOutcome:
    """Run a job; errors of the user's making are part of the outcome."""
    start, error, signal_number = time.monotonic(), None, None
    try:
        job.function(*job.arguments)
    except MeristemError as stopped:
        error, signal_number = str(stopped), getattr(stopped, "signal_number", None)
    return JobOutcome(minutes=(time.monotonic() - start) / 60, error=error, signal_number=signal_number)


def _start_worker(parent: int) -> None:
    """In a worker: Ctrl-C is for the parent alone, which passes it on; end at once if the parent was killed, so that
    its runs are free to be resumed."""
    os.setpgrp()

    def check_parent() -> None:
        while os.getppid() == parent:
            time.sleep(CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=check_parent, daemon=True).start()
