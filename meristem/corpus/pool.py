"""Pieces worked on by several processes, with results in order, bounded memory, and no way to hang."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

from meristem.corpus.batches import Batch, batches
from meristem.corpus.pieces import Piece
from meristem.corpus.settings import CorpusSettings
from meristem.errors import MeristemError
from meristem.interrupts import unheard

AHEAD = 24
"""Batches a worker may be ahead of the one that is wanted: enough for a range of a large file and half of the next."""


@dataclass(frozen=True)
class Failure:
    """What a worker says when it cannot go on."""

    message: str


class Worker:
    """A process at work on its share of the pieces, and what it has sent so far; None ends a piece."""

    def __init__(self, pieces: Sequence[Piece], settings: CorpusSettings, others: Sequence[Worker]) -> None:
        context = multiprocessing.get_context("fork")
        self.reader, writer = context.Pipe(duplex=False)
        inherited = [self.reader, *(other.reader for other in others)]
        self.process: BaseProcess = context.Process(
            target=_work, args=(pieces, settings, writer, inherited), daemon=True)
        self.process.start()
        writer.close()  # the worker holds the only other end: its death ends the pipe
        self.waiting: deque[Batch | Failure | None] = deque()
        self.ended = False

    def collect(self) -> None:
        """Take in one message."""
        try:
            self.waiting.append(self.reader.recv())
        except (EOFError, OSError):
            self.ended = True

    def stop(self) -> None:
        """End the process, wherever it is."""
        self.process.kill()
        self.process.join()
        self.reader.close()


class Pool:
    """Workers that take the pieces in turn; what they send is asked for in order."""

    def __init__(self, pieces: Sequence[Piece], settings: CorpusSettings, processes: int) -> None:
        self._pieces = pieces
        self._workers: list[Worker] = []
        try:
            for number in range(processes):
                with unheard():
                    self._workers.append(Worker(pieces[number::processes], settings, self._workers))
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.stop()

    def batches(self, number: int) -> Iterator[Batch]:
        """The batches of one piece; pieces are asked for one after the other."""
        worker = self._workers[number % len(self._workers)]
        while (message := self._next(worker, number)) is not None:
            yield message

    def _next(self, worker: Worker, number: int) -> Batch | None:
        while not worker.waiting:
            if worker.ended:
                worker.process.join(5)
                raise MeristemError(f"{self._pieces[number].source.name}: the process reading it ended unexpectedly "
                                    f"({_cause(worker.process.exitcode)}); corpus.processes=1 needs the least memory")
            # Whoever has room is heard, so that the others are not held up while this one is waited for.
            heard = {w.reader: w for w in self._workers if not w.ended and (w is worker or len(w.waiting) < AHEAD)}
            for ready in wait(list(heard)):
                heard[ready].collect()  # type: ignore[index]  # `wait` gives back what it was given
        message = worker.waiting.popleft()
        if isinstance(message, Failure):
            raise MeristemError(message.message)
        return message


def _work(pieces: Sequence[Piece], settings: CorpusSettings, writer: Connection, inherited: list[Connection]) -> None:
    """A worker's life: Ctrl-C is its parent's to handle, and a parent that is gone breaks the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for reader in inherited:
        reader.close()
    try:
        for piece in pieces:
            try:
                for batch in batches(piece, settings):
                    writer.send(batch)
                writer.send(None)
            except BrokenPipeError:
                raise
            except MeristemError as error:
                writer.send(Failure(str(error)))
            except Exception as error:
                writer.send(Failure(f"{piece.source.name}: cannot be read: {type(error).__name__}: {error}"))
    except BrokenPipeError:
        return


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        hint = ", perhaps out of memory" if -code == signal.SIGKILL else ""
        return f"{signal.Signals(-code).name}{hint}"
    return f"exit code {code}"
