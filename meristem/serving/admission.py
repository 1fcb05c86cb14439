"""Who gets in: a bounded number of requests, each until its deadline or until its client has left."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

from meristem.generation.fair_share import Owner
from meristem.serving.errors import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = TypeVar("Answer")

TICKET = "meristem.ticket"
CLIENT = "meristem.client"
"""Where in a request's scope its client's name is: its key's digest, else its address."""
RECENT = 10.0
"""Seconds after its last request for which a client's share of the places stays open to it."""
RESERVE = 8
"""One of so many places is only for clients that have no request inside."""
SMOOTH = 0.05
"""Weight of the newest request in the mean time that requests take."""


class Gone(Exception):
    """The client has left: whatever would be said, nobody hears it."""


class Ticket:
    """One request that was let in."""

    def __init__(self, deadline: float, client: str = "") -> None:
        self.owner = Owner(client, object())
        """Whose request it is: work is shared between clients, and between the requests of one."""
        self.tokens_read = 0
        """Tokens of its texts, as often as they are read."""
        self.characters = 0
        """Characters of all its texts."""
        self.begun = time.monotonic()
        self._deadline = self.begun + deadline
        self._left = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for it; workers ask this between two steps."""
        return not self._left and time.monotonic() < self._deadline

    def leave(self) -> None:
        """The client has left, or has its answer."""
        self._left = True
        if not self.gone.done():
            self.gone.set_result(None)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    async def wait(self, answer: asyncio.Future[Answer]) -> Answer:
        """The answer, unless the client leaves or the deadline comes before it."""
        try:
            await asyncio.wait((answer, self.gone), timeout=self.remaining, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
        finally:  # whoever stops waiting has heard whatever there was to hear
            if not answer.cancel() and not answer.cancelled():
                answer.exception()
        if self._left:
            raise Gone
        self._left = True
        raise Refused(503, f"not done within {self._deadline - self.begun:g} s: ask for less, or try later", after=1)


class Admission:
    """A number of places, shared between the clients of the last seconds; whoever finds none is told to come back."""

    def __init__(self, places: int, deadline: float) -> None:
        self._places, self._deadline = places, deadline
        self.inside = 0
        self.cut_off = 0
        """Requests that were let in and whose answer never reached its end, since the server was asked to stop."""
        self.stopping = False
        self._seconds = 0.1
        self._held: Counter[str] = Counter()
        self._seen: dict[str, float] = {}

    @property
    def crowded(self) -> bool:
        """Whether a client might find no place."""
        return self.inside * max(2, len(self._seen)) >= self._places

    def full(self, client: str = "") -> bool:
        """Whether every place is taken, or this client has its share of them."""
        now = time.monotonic()
        self._seen[client] = now
        held = self._held[client]
        if self.inside >= self._places - (self._places // RESERVE if held else 0):
            return True
        if not self.crowded and len(self._seen) <= self._places:
            return False
        self._seen = {one: at for one, at in self._seen.items() if at > now - RECENT or self._held[one]}
        return held >= max(1, self._places // len(self._seen))

    @property
    def after(self) -> int:
        """Seconds until a place is likely to be free."""
        return max(1, math.ceil(self._seconds))

    def refused(self, after: int) -> Refused:
        """What one who finds no place is told."""
        told = f"{self._places} requests, or this client's share of them, are in work already: try again in {after} s"
        return Refused(429, told, after=after)

    def check(self, client: str = "") -> None:
        """Refuse when there is no place."""
        if self.stopping:
            raise Refused(503, "the server is stopping: try another one, or later", after=1)
        if self.full(client):
            raise self.refused(self.after)

    def enter(self, client: str = "") -> Ticket:
        """Take a place."""
        self.check(client)
        self.inside += 1
        self._held[client] += 1
        return Ticket(self._deadline, client)

    def leave(self, ticket: Ticket) -> None:
        """Give the place back."""
        self.inside -= 1
        client = str(ticket.owner.client)
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        ticket.leave()
        self._seconds += SMOOTH * (time.monotonic() - ticket.begun - self._seconds)


class Gate:
    """The part of the application that gives each request with work a ticket, and notices when its client leaves."""

    def __init__(self, app: App, admission: Admission) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests that only look (GET) need no ticket."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        ticket = self._admission.enter(scope.get(CLIENT, ""))
        scope[TICKET] = ticket
        first = [await receive()]
        watcher = asyncio.create_task(_watch(receive, ticket))

        async def replayed() -> Message:
            if first:
                return first.pop()
            await ticket.gone
            return {"type": "http.disconnect"}

        async def sent(message: Message) -> None:
            """Send within the deadline: a client that does not read keeps no place."""
            try:
                await asyncio.wait_for(send(message), ticket.remaining)
            except TimeoutError:
                raise Gone from None

        try:
            await self._app(scope, replayed, sent)
        except Gone:
            pass  # there is nobody to answer
        except asyncio.CancelledError:  # the server has waited long enough
            self._admission.cut_off += 1
            raise
        finally:
            watcher.cancel()
            self._admission.leave(ticket)


async def _watch(receive: Receive, ticket: Ticket) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    ticket.leave()
