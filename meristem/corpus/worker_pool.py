"""Worker processes that read and clean ranges of the corpus: results in order, bounded memory, no deadlocks."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

from meristem.config.errors import MeristemError
from meristem.corpus.document_batches import DocumentBatch, read_batches
from meristem.corpus.read_ranges import ReadRange
from meristem.corpus.settings import CorpusSettings
from meristem.utils.interrupts import defer_interrupts

MAX_BATCHES_AHEAD = 24
"""Batches a worker may be ahead of the consumer: enough for a range of a large file and half of the next."""


@dataclass(frozen=True)
class WorkerFailure:
    """The error message of a worker that failed."""

    message: str


class ReadWorker:
    """A worker process for its share of the ranges, and the messages it has sent; None marks the end of a range."""

    def __init__(
        self, read_ranges: Sequence[ReadRange], settings: CorpusSettings, others: Sequence[ReadWorker]
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.reader, writer = context.Pipe(duplex=False)
        inherited = [self.reader, *(other.reader for other in others)]
        self.process: BaseProcess = context.Process(
            target=_run_worker, args=(read_ranges, settings, writer, inherited), daemon=True
        )
        self.process.start()
        writer.close()  # the worker holds the only write end: its death closes the pipe
        self.queue: deque[DocumentBatch | WorkerFailure | None] = deque()
        self.is_finished = False

    def receive(self) -> None:
        """Receive one message."""
        try:
            self.queue.append(self.reader.recv())
        except (EOFError, OSError):
            self.is_finished = True

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self.reader.close()


class ReadWorkerPool:
    """Workers that take the ranges in turn; their results are read in order."""

    def __init__(self, read_ranges: Sequence[ReadRange], settings: CorpusSettings, processes: int) -> None:
        self._read_ranges = read_ranges
        self._workers: list[ReadWorker] = []
        try:
            for number in range(processes):
                with defer_interrupts():
                    self._workers.append(ReadWorker(read_ranges[number::processes], settings, self._workers))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._workers:
            worker.stop()

    def batches(self, number: int) -> Iterator[DocumentBatch]:
        """The batches of one range; ranges must be requested in order."""
        worker = self._workers[number % len(self._workers)]
        while (message := self._next_batch(worker, number)) is not None:
            yield message

    def _next_batch(self, worker: ReadWorker, number: int) -> DocumentBatch | None:
        while not worker.queue:
            if worker.is_finished:
                worker.process.join(5)
                raise MeristemError(
                    f"{self._read_ranges[number].source.name}: the process reading it ended unexpectedly "
                    f"({_exit_cause(worker.process.exitcode)}); corpus.processes=1 needs the least memory"
                )
            # Receive from every worker with queue space, so that none blocks while this one is waited for.
            by_reader = {
                other.reader: other
                for other in self._workers
                if not other.is_finished and (other is worker or len(other.queue) < MAX_BATCHES_AHEAD)
            }
            for ready in wait(list(by_reader)):
                by_reader[ready].receive()  # type: ignore[index]  # `wait` returns the objects it was given
        message = worker.queue.popleft()
        if isinstance(message, WorkerFailure):
            raise MeristemError(message.message)
        return message


def _run_worker(
    read_ranges: Sequence[ReadRange], settings: CorpusSettings, writer: Connection, inherited: list[Connection]
) -> None:
    """Main function of a worker: the parent handles Ctrl-C, and a dead parent breaks the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for reader in inherited:
        reader.close()
    try:
        for read_range in read_ranges:
            try:
                for batch in read_batches(read_range, settings):
                    writer.send(batch)
                writer.send(None)
            except BrokenPipeError:
                raise
            except MeristemError as error:
                writer.send(WorkerFailure(str(error)))
            except Exception as error:
                writer.send(WorkerFailure(f"{read_range.source.name}: cannot be read: {type(error).__name__}: {error}"))
    except BrokenPipeError:
        return


def _exit_cause(code: int | None) -> str:
    if code is not None and code < 0:
        hint = ", perhaps out of memory" if -code == signal.SIGKILL else ""
        return f"{signal.Signals(-code).name}{hint}"
    return f"exit code {code}"
