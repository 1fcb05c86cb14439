"""The job queue of the batch worker: fair scheduling by client and request, batches of similar lengths."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from meristem.generation.fair_scheduling import FairScheduler, Owner
from meristem.serving.middleware.admission import RequestContext

MAX_BATCH_TOKENS = 256
"""Maximum tokens of a batch including padding: this saturates one core, and more would only add latency."""
MIN_BATCH_ROWS, MAX_PADDING_RATIO = 8, 1.3
"""Batches of more rows than the minimum may have at most this ratio of padded to real tokens."""
LONG_JOB_TOKENS = 4 * MAX_BATCH_TOKENS
"""A job of more tokens is computed alone, and yields to others between two forward passes."""
SHORT_TEXT_CHARS = 4096
"""Texts up to this length are tokenized without scheduling."""
PREPARE_CHARS = 4 * SHORT_TEXT_CHARS
"""Characters of short jobs that a thread tokenizes before it computes a batch."""
MAX_CANDIDATES = 32
"""Jobs of one request that are considered for a batch."""
MAX_LONG_JOBS = 32
"""Maximum number of running long jobs of all clients."""
RECENT = 2.0
"""Seconds after a light job for which a turn is kept for the next one."""
START_CHARGE_SECONDS = 0.005
"""Seconds charged to a job when it starts, so that two threads do not both pick the same client."""


def _input_tokens(inputs: Any, length: int) -> int:
    return length


@dataclass(frozen=True)
class RequestWork:
    """How a route is computed with a run; requests whose work has the same key can be batched."""

    key: tuple[Hashable, ...]
    """The run, the route, and the parameters that must be equal within a batch."""
    prepare: Callable[[Any], tuple[Any, int]]
    """Request → (model inputs, number of tokens); raises for an invalid request."""
    compute: Callable[[Sequence[Any]], Sequence[Any]]
    """Model inputs of a batch → results."""
    count_tokens: Callable[[Any, int], int] = _input_tokens
    """(model inputs, number of tokens) → tokens of all forward passes, since a text may need several."""

    @property
    def name(self) -> str:
        """Run and route, for logs and metrics."""
        return f"{self.key[0]} {self.key[1]}"


@dataclass(eq=False)
class Job:
    """One input of a request in the queue or in a batch."""

    work: RequestWork
    request: Any
    context: RequestContext
    future: asyncio.Future[Any]
    num_characters: int = 0
    light: bool = True
    """Whether its request is light: others wait for it (light_requests.py)."""
    inputs: Any = None
    length: int = 0
    total_tokens: int = 0
    state: Literal["new", "preparing", "ready"] = "new"

    @property
    def owner(self) -> Owner:
        """The client and request it belongs to."""
        return self.context.owner

    @property
    def is_long(self) -> bool:
        """Whether it is computed alone and yields between passes."""
        return self.total_tokens > LONG_JOB_TOKENS

    @property
    def heavy(self) -> bool:
        """Whether it takes a turn that short jobs of light requests must find free."""
        return self.is_long or not self.light or self.num_characters > SHORT_TEXT_CHARS


def count_characters(request: Any) -> int:
    """Number of characters of all texts in a request."""
    if isinstance(request, str):
        return len(request)
    parts = request.values() if isinstance(request, dict) else request if isinstance(request, (list, tuple)) else ()
    return len(parts) + sum(count_characters(part) for part in parts if isinstance(part, (str, list, tuple, dict)))


class JobQueue:
    """Jobs by request; at most `max_running` batches are computed at once. Not thread-safe: callers hold a lock."""

    def __init__(self, max_running: int) -> None:
        self._max_running, self._num_running, self._heavy_computing = max_running, 0, 0
        self._light_came = -RECENT
        self._jobs: dict[Owner, deque[Job]] = {}
        self._suspended: dict[Owner, deque[Job]] = {}
        self._long_jobs: Counter[Hashable] = Counter()
        """Running long jobs by client: each occupies a thread, also while it is suspended."""
        self._shares = FairScheduler()

    @property
    def num_waiting(self) -> int:
        """Number of jobs that are in no batch yet."""
        return sum(map(len, list(self._jobs.values())))

    @property
    def num_long(self) -> int:
        """Number of running long jobs."""
        return sum(self._long_jobs.values())

    @property
    def has_startable(self) -> bool:
        """Whether an idle thread can start a job."""
        if self._num_running >= self._max_running:
            return False
        short = (jobs[0] for jobs in self._jobs.values() if jobs[0].num_characters <= SHORT_TEXT_CHARS)
        if any(job.state == "new" and (job.light or self._heavy_turn) for job in short):
            return True
        owner = self._next_owner()
        return owner is not None and owner not in self._suspended

    def add(self, job: Job) -> None:
        """One more."""
        if not job.heavy:
            self._light_came = time.monotonic()
        self._jobs.setdefault(job.owner, deque()).append(job)

    def remove(self, job: Job) -> None:
        """Remove a job that failed or was put into a batch."""
        jobs = self._jobs.get(job.owner)
        if jobs is not None and job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._jobs[job.owner]

    # ------------------------------------------------------------ scheduling

    def take_unprepared(self) -> list[Job]:
        """Short jobs to be cut into tokens, some of each request; they stay in the queue.

        Those of light requests come first, and others only where heavy work has a turn.
        """
        unprepared = self._unprepared(PREPARE_CHARS, light=True)
        return unprepared if unprepared or not self._heavy_turn else self._unprepared(SHORT_TEXT_CHARS, light=False)

    def _unprepared(self, room: int, *, light: bool) -> list[Job]:
        """So many characters of short jobs."""
        out: list[Job] = []
        for owner in sorted(self._jobs, key=self._shares.rank):
            for job in islice(self._jobs[owner], MAX_CANDIDATES):
                short = job.light is light and job.num_characters <= SHORT_TEXT_CHARS
                if job.state == "new" and short and job.context.is_active and room > 0:
                    job.state = "preparing"
                    room -= max(job.num_characters, SHORT_TEXT_CHARS // MAX_CANDIDATES)
                    out.append(job)
        return out

    def take_batch(self) -> list[Job]:
        """The next batch, or one job whose long text must be tokenized first; empty if nothing can start."""
        for inactive_owner in [owner for owner, jobs in self._jobs.items() if not jobs[0].context.is_active]:
            del self._jobs[inactive_owner]
        self._shares.set_active([*self._jobs, *self._suspended])
        owner = self._next_owner() if self._num_running < self._max_running else None
        first = None if owner is None or owner in self._suspended else self._first_startable(owner)
        if first is None:
            return []
        batch = [first]
        if first.state == "new":
            first.state = "preparing"
        elif first.is_long:
            self._long_jobs[first.owner.client] += 1
        else:
            batch = self._similar_batch(first)
        self._heavy_computing += first.heavy
        for job in batch:
            if job.state == "ready":
                self.remove(job)
            self._shares.charge(job.owner, START_CHARGE_SECONDS / len(batch))
        self._num_running += 1
        return batch

    def finish(self, batch: Sequence[Job], seconds: float, *, computed: bool, heavy: bool) -> None:
        """A batch is computed, or else a text prepared; `heavy` says whether its first job was when it was taken."""
        self._num_running -= 1
        self._heavy_computing -= heavy
        for job in batch:
            self._shares.charge(job.owner, (seconds - START_CHARGE_SECONDS) / len(batch))
        if computed and batch[0].is_long:
            self._long_jobs -= Counter([batch[0].owner.client])

    def charge(self, job: Job, seconds: float) -> None:
        """Charge the time of one forward pass of a long job."""
        self._shares.charge(job.owner, seconds)

    def suspend(self, job: Job) -> bool:
        """Suspend a long job if another request is less served; returns whether it must wait."""
        self._suspended.setdefault(job.owner, deque()).append(job)
        self._num_running -= 1
        self._heavy_computing -= 1
        return not self.resume(job)

    def resume(self, job: Job) -> bool:
        """Resume a suspended job if it is next; returns whether it was."""
        if (
            self._num_running >= self._max_running
            or self._next_owner() != job.owner
            or self._suspended[job.owner][0] is not job
        ):
            return False
        self.abandon(job)
        return True

    def abandon(self, job: Job) -> None:
        """Take a job out of the suspended ones and count it as running, even beyond the limit, so that it can end."""
        self._suspended[job.owner].remove(job)
        if not self._suspended[job.owner]:
            del self._suspended[job.owner]
        self._num_running += 1
        self._heavy_computing += 1

    @property
    def _heavy_turn(self) -> bool:
        """Whether there is a turn for a heavy job: one of several is only for light ones, while such come."""
        reserved_turns = 1 if time.monotonic() < self._light_came + RECENT else 0
        return self._heavy_computing < max(1, self._max_running - reserved_turns)

    def _next_owner(self) -> Owner | None:
        """The least served request with a job to compute; suspended jobs are resumed before new ones start."""
        startable_owners = [
            owner for owner in self._jobs if owner not in self._suspended and self._first_startable(owner) is not None
        ]
        owners = [*(self._suspended if self._heavy_turn else ()), *startable_owners]
        return self._shares.least_served(owners) if owners else None

    def _first_startable(self, owner: Owner) -> Job | None:
        """The oldest job of a request that may start; a client runs at most `max_running` long jobs.

        While light ones come, a turn is kept free of heavy jobs and of cutting long texts, which nothing interrupts.

        A short one that is still to be prepared comes last, but it counts: a long job gives it a turn, too.
        """
        at_long_limit = self._long_jobs[owner.client] >= self._max_running or self.num_long >= MAX_LONG_JOBS
        unprepared: Job | None = None
        for job in islice(self._jobs[owner], MAX_CANDIDATES):
            if job.heavy and not self._heavy_turn:
                continue
            if job.state == "ready" and not (job.is_long and at_long_limit):
                return job
            if job.state == "new":
                if job.num_characters > SHORT_TEXT_CHARS:
                    return job
                unprepared = unprepared or job
        return unprepared

    def _similar_batch(self, first: Job) -> list[Job]:
        """A short job and the jobs of the same work with the most similar lengths (length bucketing)."""
        candidates = list(self._similar_jobs(first))
        # free threads get their share of the candidates
        max_rows = max(MIN_BATCH_ROWS, -(-len(candidates) // (self._max_running - self._num_running)))
        batch: list[Job] = []
        max_length = total_length = 0
        for job in sorted(candidates, key=lambda job: abs(job.length - first.length)):  # `first` comes first
            max_length, total_length = max(max_length, job.length), total_length + job.length
            padded_tokens = (len(batch) + 1) * max_length
            if batch and (
                len(batch) == max_rows
                or padded_tokens > MAX_BATCH_TOKENS
                or (len(batch) >= MIN_BATCH_ROWS and padded_tokens > MAX_PADDING_RATIO * total_length)
            ):
                break
            batch.append(job)
        return batch

    def _similar_jobs(self, first: Job) -> Iterator[Job]:
        yield first
        for jobs in self._jobs.values():
            for job in islice(jobs, MAX_CANDIDATES):
                is_short = job.state == "ready" and not job.is_long and job.heavy is first.heavy
                if job is not first and is_short and job.work.key == first.work.key and job.context.is_active:
                    yield job
