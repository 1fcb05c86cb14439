"""Dynamic batching: threads take the job of the least served client and all that are like it.

Nothing waits for company: while one batch is computed the next gathers by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from functools import partial
from threading import Condition
from typing import Any

from meristem.errors import MeristemError
from meristem.generation.watching import Abandoned, in_turns, watched
from meristem.serving.admission import Ticket
from meristem.serving.errors import Refused
from meristem.serving.jobs import TOKENS, Job, JobQueue, Work, characters_in
from meristem.serving.light_requests import CHARACTERS, LightRequests
from meristem.serving.metrics import Metrics
from meristem.serving.worker import Worker, post

log = logging.getLogger("meristem.serving")


def told(error: BaseException, what: str) -> Refused:
    """What a client hears of an error; one that is nobody's fault but ours is logged under a number."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, MeristemError):
        return Refused(422, str(error))
    number = uuid.uuid4().hex[:12]
    log.error("error %s in %s", number, what, exc_info=error)
    return Refused(500, f"this request failed inside the server; its log says why under error {number}")


class Clock:
    """Seconds of the processor that this thread has used."""

    def __init__(self) -> None:
        self._last = time.thread_time()

    def lap(self) -> float:
        """Since the last time."""
        before, self._last = self._last, time.thread_time()
        return self._last - before


class Batcher(Worker):
    """The threads that read: a fixed number compute at once, in an order that is fair to clients and requests.

    A job that takes more than a few passes is computed alone, and between two passes it gives its turn to whoever has
    had less: its thread waits then, and another one computes.
    """

    name = "meristem-reading"

    def __init__(
        self, metrics: Metrics, threads: int = 1, *, tokens: int = 1 << 18, light: LightRequests | None = None
    ) -> None:
        """`tokens` are those that one request may have read; long jobs wait for the requests of `light`."""
        super().__init__(threads)
        self._metrics, self._tokens, self._light = metrics, tokens, light or LightRequests()
        self._queue = JobQueue(threads)
        self._resumed = Condition(self._lock)

    @property
    def waiting(self) -> int:
        """Jobs that no batch holds yet."""
        return self._queue.waiting

    async def ask(self, work: Work, asked: Any, ticket: Ticket) -> Any:
        """The answer to one request."""
        characters = characters_in(asked)
        ticket.characters = max(ticket.characters, characters)
        light = ticket.characters <= CHARACTERS
        job = Job(work, asked, ticket, asyncio.get_running_loop().create_future(), characters=characters, light=light)
        with self._light.answering(light):
            with self._changed:
                self._queue.add(job)
                self._changed.notify()
            return await ticket.wait(job.done)

    # ------------------------------------------------------------ in the worker

    def busy(self) -> bool:
        """Whether there is a job that may be computed now."""
        return self._queue.startable

    def work(self) -> None:
        """One batch, or the preparation of one long text."""
        with self._lock:
            short = self._queue.take_unprepared()
        for job in short:
            self._prepare(job)
        with self._lock:
            batch = self._queue.take()
            if self._queue.startable:
                self._changed.notify()  # there is enough for another thread
            if len(self._threads) < self._count + self._queue.long:
                self._spawn()
            if not batch:  # those that were before a suspended job have left or were refused
                self._resumed.notify_all()
                return
        heavy, computed = batch[0].heavy, batch[0].state == "ready"
        if heavy and self._count > 1:
            self._light.wait()
        clock = Clock()
        try:
            if not computed:
                self._prepare(batch[0])
            else:
                self._metrics.batch(batch[0].work.name, len(batch))
                _deliver(self._answered(batch, clock))
        finally:
            with self._lock:
                self._queue.finish(batch, clock.lap(), computed=computed, heavy=heavy)
                self._wake()

    def _wake(self) -> None:
        """A turn is free: for a job that is suspended, or for a thread that waits."""
        self._resumed.notify_all()
        self._changed.notify()

    def _prepare(self, job: Job) -> None:
        """Cut a text into tokens; what is wrong with a request is told before it could spoil a batch."""
        try:
            job.read, job.size = job.work.ready(job.asked)
            job.tokens = job.work.tokens(job.read, job.size)
            with self._lock:  # other texts of the same request are prepared meanwhile
                job.ticket.tokens_read += job.tokens
            if job.ticket.tokens_read > self._tokens:
                raise Refused(422, f"more than {self._tokens:,} tokens would have to be read for this request: "
                                   "send fewer or shorter texts")  # fmt: skip
            job.state = "ready"
        except Exception as error:
            with self._lock:
                self._queue.remove(job)
            _deliver([(job, told(error, job.work.name))])

    def _answered(self, batch: list[Job], clock: Clock) -> list[tuple[Job, Any]]:
        """Answers, or what went wrong; where a batch fails, each is tried alone, and only the culprit fails."""
        work = batch[0].work
        yield_turn = partial(self._yield_turn, batch[0], clock) if batch[0].long else None
        try:
            with watched(lambda: any(job.ticket.wanted for job in batch)), in_turns(yield_turn, TOKENS):
                return list(zip(batch, work.answer([job.read for job in batch]), strict=True))
        except Abandoned:
            return []
        except Exception as error:
            if len(batch) == 1:
                return [(batch[0], told(error, work.name))]
        return [pair for job in batch for pair in self._answered([job], clock)]

    def _yield_turn(self, job: Job, clock: Clock) -> None:
        """Between two passes of a long job: wait for light requests, and while others have had less."""
        if self._count > 1:  # there is a turn for the light ones
            self._light.wait()
        with self._lock:
            self._queue.charge(job, clock.lap())
            if not self._queue.suspend(job):
                return
            self._wake()
            while not self._queue.resume(job):
                if self._stopping or not job.ticket.wanted:
                    self._queue.abandon(job)
                    raise Abandoned
                self._resumed.wait(1.0)
            clock.lap()


def _deliver(pairs: Sequence[tuple[Job, Any]]) -> None:
    """Hand answers over to the loop that the requests wait in."""
    if pairs:
        post(pairs[0][0].done.get_loop(), _settle, pairs)


def _settle(pairs: Sequence[tuple[Job, Any]]) -> None:
    for job, answer in pairs:
        if job.done.done():
            continue
        if isinstance(answer, Refused):
            job.done.set_exception(answer)
        else:
            job.done.set_result(answer)
