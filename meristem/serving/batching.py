"""Requests of many clients read together: one worker takes the oldest and all that are like it.

Nothing waits for company: while one batch is computed the next gathers by itself.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from meristem.errors import MeristemError
from meristem.generation.watching import Abandoned, watched
from meristem.serving.admission import Ticket
from meristem.serving.errors import Refused
from meristem.serving.metrics import Metrics
from meristem.serving.worker import Worker, post

TOKENS = 256
"""What one batch holds at the most, padding counted: a core is busy with that many, and more would only wait longer."""
FEW, WASTE = 8, 1.3
"""Beyond a few rows nothing is won by reading much padding."""
log = logging.getLogger("meristem.serving")


@dataclass(frozen=True)
class Work:
    """One way of asking one run: requests whose work has the same key are read together."""

    key: tuple[Hashable, ...]
    """The run, the route, and what else must be the same."""
    ready: Callable[[Any], tuple[Any, int]]
    """What was asked → what is read, and how many tokens that is; it refuses what is wrong."""
    answer: Callable[[Sequence[Any]], Sequence[Any]]

    @property
    def name(self) -> str:
        """Run and route."""
        return f"{self.key[0]} {self.key[1]}"


@dataclass(eq=False)
class Job:
    """One request on its way."""

    work: Work
    asked: Any
    ticket: Ticket
    done: asyncio.Future[Any]
    read: Any = None
    size: int = 0


def told(error: BaseException, what: str) -> Refused:
    """What a client hears of an error; one that is nobody's fault but ours is logged under a number."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, MeristemError):
        return Refused(422, str(error))
    number = uuid.uuid4().hex[:12]
    log.error("error %s in %s", number, what, exc_info=error)
    return Refused(500, f"this request failed inside the server; its log says why under error {number}")


class Batcher(Worker):
    """The worker that reads."""

    name = "meristem-reading"

    def __init__(self, metrics: Metrics, threads: int = 1) -> None:
        super().__init__(threads)
        self._metrics = metrics
        self._new: deque[Job] = deque()
        self._jobs: list[Job] = []

    @property
    def waiting(self) -> int:
        """Requests that no batch holds yet."""
        return len(self._new) + len(self._jobs)

    async def ask(self, work: Work, asked: Any, ticket: Ticket) -> Any:
        """The answer to one request."""
        job = Job(work, asked, ticket, asyncio.get_running_loop().create_future())
        with self._changed:
            self._new.append(job)
            self._changed.notify()
        return await ticket.wait(job.done)

    # ------------------------------------------------------------ in the worker

    def busy(self) -> bool:
        """Whether anybody waits."""
        return bool(self._new or self._jobs)

    def work(self) -> None:
        """One batch."""
        ready = self._gather()
        with self._changed:
            self._jobs += ready
            batch = self._pick()
            if self._jobs:
                self._changed.notify()  # there is enough for another one
        if batch:
            self._metrics.batch(batch[0].work.name, len(batch))
            _deliver(self._answered(batch))

    def _gather(self) -> list[Job]:
        """What has come; what is wrong with a request is told before it could spoil a batch."""
        with self._changed:
            new, self._new = self._new, deque()
        ready, wrong = [], []
        for job in new:
            try:
                if job.ticket.wanted:
                    job.read, job.size = job.work.ready(job.asked)
                    ready.append(job)
            except Exception as error:
                wrong.append((job, told(error, job.work.name)))
        _deliver(wrong)
        return ready

    def _pick(self) -> list[Job]:
        """The oldest, and those of the same work whose lengths are nearest to its own."""
        self._jobs = [job for job in self._jobs if job.ticket.wanted]
        if not self._jobs:
            return []
        first = self._jobs[0]
        alike = [job for job in self._jobs if job.work.key == first.work.key]
        most = max(FEW, -(-len(alike) // (1 + self.idle)))  # threads that have nothing to do get their share
        batch: list[Job] = []
        longest = whole = 0
        for job in sorted(alike, key=lambda job: abs(job.size - first.size)):  # the oldest is the nearest of all
            longest, whole = max(longest, job.size), whole + job.size
            padded = (len(batch) + 1) * longest
            if batch and (len(batch) == most or padded > TOKENS or (len(batch) >= FEW and padded > WASTE * whole)):
                break
            batch.append(job)
        taken = set(map(id, batch))
        self._jobs = [job for job in self._jobs if id(job) not in taken]
        return batch

    def _answered(self, batch: list[Job]) -> list[tuple[Job, Any]]:
        """Answers, or what went wrong; where a batch fails, each is tried alone, and only the culprit fails."""
        work = batch[0].work
        try:
            with watched(lambda: any(job.ticket.wanted for job in batch)):
                return list(zip(batch, work.answer([job.read for job in batch]), strict=True))
        except Abandoned:
            return []
        except Exception as error:
            if len(batch) == 1:
                return [(batch[0], told(error, work.name))]
        return [pair for job in batch for pair in self._answered([job])]


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
