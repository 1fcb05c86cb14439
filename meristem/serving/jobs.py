"""Jobs that wait to be read, and which of them are next: by client, by request, and in batches of like lengths."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from meristem.generation.fair_share import FairShare, Owner
from meristem.serving.admission import Ticket

TOKENS = 256
"""What one batch holds at the most, padding counted: a core is busy with that many, and more would only wait longer."""
FEW, WASTE = 8, 1.3
"""Beyond a few rows nothing is won by reading much padding."""
LONG = 4 * TOKENS
"""A job of more tokens is computed alone, and gives its turn to others between two passes."""
SHORT = 4096
"""Characters that are cut into tokens in no time worth a turn."""
AT_ONCE = 4 * SHORT
"""Characters of short jobs that a thread prepares before it computes a batch."""
LOOKED_AT = 32
"""Jobs of one request among which a batch is picked."""
LONG_JOBS = 32
"""Long jobs in work at the most, whosever they are."""
RECENT = 2.0
"""Seconds after a light job for which a turn is kept for the next one."""
ADVANCE = 0.005
"""Seconds that a job is charged when it begins, so that two threads do not both begin with the same client."""


def _all_of_it(read: Any, size: int) -> int:
    return size


@dataclass(frozen=True)
class Work:
    """One way of asking one run: requests whose work has the same key are read together."""

    key: tuple[Hashable, ...]
    """The run, the route, and what else must be the same."""
    ready: Callable[[Any], tuple[Any, int]]
    """What was asked → what is read, and how many tokens that is; it refuses what is wrong."""
    answer: Callable[[Sequence[Any]], Sequence[Any]]
    tokens: Callable[[Any, int], int] = _all_of_it
    """What is read and how many tokens that is → the tokens of all passes: texts may be read many times."""

    @property
    def name(self) -> str:
        """Run and route."""
        return f"{self.key[0]} {self.key[1]}"


@dataclass(eq=False)
class Job:
    """One text of a request on its way."""

    work: Work
    asked: Any
    ticket: Ticket
    done: asyncio.Future[Any]
    characters: int = 0
    light: bool = True
    """Whether its request is light: others wait for it (light_requests.py)."""
    read: Any = None
    size: int = 0
    tokens: int = 0
    state: Literal["new", "preparing", "ready"] = "new"

    @property
    def owner(self) -> Owner:
        """The client and its request."""
        return self.ticket.owner

    @property
    def long(self) -> bool:
        """Whether it is computed in several turns."""
        return self.tokens > LONG

    @property
    def heavy(self) -> bool:
        """Whether it takes a turn that short jobs of light requests must find free."""
        return self.long or not self.light or self.characters > SHORT


def characters_in(asked: Any) -> int:
    """Characters of all texts in what was asked."""
    if isinstance(asked, str):
        return len(asked)
    parts = asked.values() if isinstance(asked, dict) else asked if isinstance(asked, (list, tuple)) else ()
    return len(parts) + sum(characters_in(part) for part in parts if isinstance(part, (str, list, tuple, dict)))


class JobQueue:
    """Jobs by request; `turns` of them, or of their batches, are computed at once. Its owner holds a lock meanwhile."""

    def __init__(self, turns: int) -> None:
        self._turns, self._computing, self._heavy_computing = turns, 0, 0
        self._light_came = -RECENT
        self._jobs: dict[Owner, deque[Job]] = {}
        self._suspended: dict[Owner, deque[Job]] = {}
        self._long: Counter[Hashable] = Counter()
        """Long jobs in work by client: each holds a thread while it waits for its turn."""
        self._shares = FairShare()

    @property
    def waiting(self) -> int:
        """Jobs that no batch holds yet."""
        return sum(map(len, list(self._jobs.values())))

    @property
    def long(self) -> int:
        """Long jobs in work."""
        return sum(self._long.values())

    @property
    def startable(self) -> bool:
        """Whether a thread that has nothing to do should take something."""
        if self._computing >= self._turns:
            return False
        heads = (jobs[0] for jobs in self._jobs.values())
        if any(job.state == "new" and job.characters <= SHORT and (job.light or self._heavy_turn) for job in heads):
            return True
        owner = self._next()
        return owner is not None and owner not in self._suspended

    def add(self, job: Job) -> None:
        """One more."""
        if not job.heavy:
            self._light_came = time.monotonic()
        self._jobs.setdefault(job.owner, deque()).append(job)

    def remove(self, job: Job) -> None:
        """One that is refused, or taken."""
        jobs = self._jobs.get(job.owner)
        if jobs is not None and job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._jobs[job.owner]

    # ------------------------------------------------------------ what is next

    def take_unprepared(self) -> list[Job]:
        """Short jobs to be cut into tokens, some of each request; they stay in the queue.

        Those of light requests come first, and others only where heavy work has a turn.
        """
        found = self._unprepared(AT_ONCE, light=True)
        return found if found or not self._heavy_turn else self._unprepared(SHORT, light=False)

    def _unprepared(self, room: int, *, light: bool) -> list[Job]:
        """So many characters of short jobs."""
        out: list[Job] = []
        for owner in sorted(self._jobs, key=self._shares.rank):
            for job in islice(self._jobs[owner], LOOKED_AT):
                short = job.light is light and job.characters <= SHORT
                if job.state == "new" and short and job.ticket.wanted and room > 0:
                    job.state = "preparing"
                    room -= max(job.characters, SHORT // LOOKED_AT)
                    out.append(job)
        return out

    def take(self) -> list[Job]:
        """The next batch, or one long text that is still to be cut into tokens; nothing where none has a turn."""
        for left in [owner for owner, jobs in self._jobs.items() if not jobs[0].ticket.wanted]:
            del self._jobs[left]
        self._shares.settle([*self._jobs, *self._suspended])
        owner = self._next() if self._computing < self._turns else None
        first = None if owner is None or owner in self._suspended else self._first(owner)
        if first is None:
            return []
        batch = [first]
        if first.state == "new":
            first.state = "preparing"
        elif first.long:
            self._long[first.owner.client] += 1
        else:
            batch = self._like(first)
        self._heavy_computing += first.heavy
        for job in batch:
            if job.state == "ready":
                self.remove(job)
            self._shares.charge(job.owner, ADVANCE / len(batch))
        self._computing += 1
        return batch

    def finish(self, batch: Sequence[Job], seconds: float, *, computed: bool, heavy: bool) -> None:
        """A batch is computed, or else a text prepared; `heavy` says whether its first job was when it was taken."""
        self._computing -= 1
        self._heavy_computing -= heavy
        for job in batch:
            self._shares.charge(job.owner, (seconds - ADVANCE) / len(batch))
        if computed and batch[0].long:
            self._long -= Counter([batch[0].owner.client])

    def charge(self, job: Job, seconds: float) -> None:
        """A pass of a long job is computed."""
        self._shares.charge(job.owner, seconds)

    def suspend(self, job: Job) -> bool:
        """Whether a long job must wait: somebody else has had less."""
        self._suspended.setdefault(job.owner, deque()).append(job)
        self._computing -= 1
        self._heavy_computing -= 1
        return not self.resume(job)

    def resume(self, job: Job) -> bool:
        """Whether a suspended job goes on."""
        if self._computing >= self._turns or self._next() != job.owner or self._suspended[job.owner][0] is not job:
            return False
        self.abandon(job)
        return True

    def abandon(self, job: Job) -> None:
        """A suspended job takes a turn, whether or not there is one: nobody wants it any more, and it ends."""
        self._suspended[job.owner].remove(job)
        if not self._suspended[job.owner]:
            del self._suspended[job.owner]
        self._computing += 1
        self._heavy_computing += 1

    @property
    def _heavy_turn(self) -> bool:
        """Whether there is a turn for a heavy job: one of several is only for light ones, while such come."""
        kept = 1 if time.monotonic() < self._light_came + RECENT else 0
        return self._heavy_computing < max(1, self._turns - kept)

    def _next(self) -> Owner | None:
        """The least served request that has something to compute; what is suspended goes on before more begins."""
        able = [owner for owner in self._jobs if owner not in self._suspended and self._first(owner) is not None]
        owners = [*(self._suspended if self._heavy_turn else ()), *able]
        return self._shares.next_of(owners) if owners else None

    def _first(self, owner: Owner) -> Job | None:
        """The oldest job of a request that may begin: a client has as many long ones in work as there are turns.

        While light ones come, a turn is kept free of heavy jobs and of cutting long texts, which nothing interrupts.

        A short one that is still to be prepared comes last, but it counts: a long job gives it a turn, too.
        """
        crowded = self._long[owner.client] >= self._turns or self.long >= LONG_JOBS
        unprepared: Job | None = None
        for job in islice(self._jobs[owner], LOOKED_AT):
            if job.heavy and not self._heavy_turn:
                continue
            if job.state == "ready" and not (job.long and crowded):
                return job
            if job.state == "new":
                if job.characters > SHORT:
                    return job
                unprepared = unprepared or job
        return unprepared

    def _like(self, first: Job) -> list[Job]:
        """A short job, and those of the same work whose lengths are nearest to its own."""
        alike = list(self._alike(first))
        most = max(FEW, -(-len(alike) // (self._turns - self._computing)))  # threads that are free get their share
        batch: list[Job] = []
        longest = whole = 0
        for job in sorted(alike, key=lambda job: abs(job.size - first.size)):  # the first is the nearest of all
            longest, whole = max(longest, job.size), whole + job.size
            padded = (len(batch) + 1) * longest
            if batch and (len(batch) == most or padded > TOKENS or (len(batch) >= FEW and padded > WASTE * whole)):
                break
            batch.append(job)
        return batch

    def _alike(self, first: Job) -> Iterator[Job]:
        yield first
        for jobs in self._jobs.values():
            for job in islice(jobs, LOOKED_AT):
                alike = job is not first and job.state == "ready" and not job.long and job.heavy is first.heavy
                if alike and job.work.key == first.work.key and job.ticket.wanted:
                    yield job
