"""Admission control: a bounded number of concurrent requests, shared fairly between clients, each with a deadline."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meristem.generation.fair_scheduling import Owner
from meristem.serving.errors import RequestError

Result = TypeVar("Result")

SCOPE_CONTEXT = "meristem.ticket"
SCOPE_CLIENT = "meristem.client"
"""Scope key of the client's name: the digest of its API key, or its address."""
RECENT_SECONDS = 10.0
"""Seconds after its last request for which a client keeps its share of the capacity."""
RESERVED_SHARE = 8
"""One in this many slots is reserved for clients without an active request."""
SMOOTHING = 0.05
"""Weight of the newest request in the moving average of request durations."""


class ClientDisconnected(Exception):
    """The client has closed the connection; no response can be sent."""


class RequestContext:
    """An admitted request: its owner, deadline, and whether its client is still connected."""

    def __init__(self, timeout: float, client: str = "") -> None:
        self.owner = Owner(client, object())
        """For fair scheduling between clients, and between the requests of one client."""
        self.tokens_processed = 0
        """Tokens processed so far, counted once per forward pass."""
        self.characters = 0
        """Characters of all its texts."""
        self.start_time = time.monotonic()
        self._deadline = self.start_time + timeout
        self._closed = False
        self.disconnected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_active(self) -> bool:
        """Whether the client still waits for the response; workers check this between steps."""
        return not self._closed and time.monotonic() < self._deadline

    def close(self) -> None:
        """Mark the request as finished: the client has disconnected or has its response."""
        self._closed = True
        if not self.disconnected.done():
            self.disconnected.set_result(None)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    async def wait(self, result: asyncio.Future[Result]) -> Result:
        """The result, unless the client disconnects or the deadline passes first."""
        try:
            await asyncio.wait((result, self.disconnected), timeout=self.remaining, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
        finally:  # retrieve the exception, so that asyncio does not log it as never retrieved
            if not result.cancel() and not result.cancelled():
                result.exception()
        if self._closed:
            raise ClientDisconnected
        self._closed = True
        raise RequestError(
            503, f"timed out after {self._deadline - self.start_time:g} s: ask for less, or retry later", retry_after=1
        )


class AdmissionController:
    """A fixed number of slots, shared between recent clients; a request without a slot is answered 429."""

    def __init__(self, max_requests: int, timeout: float) -> None:
        self._max_requests, self._timeout = max_requests, timeout
        self.num_active = 0
        self.num_cut_off = 0
        """Admitted requests whose response was cut off by the shutdown."""
        self.stopping = False
        self._mean_seconds = 0.1
        self._active_by_client: Counter[str] = Counter()
        self._last_seen: dict[str, float] = {}

    @property
    def near_capacity(self) -> bool:
        """Whether a client could be refused; a cheap check before `is_full`."""
        return self.num_active * max(2, len(self._last_seen)) >= self._max_requests

    def is_full(self, client: str = "") -> bool:
        """Whether all slots are taken, or this client uses its share of them."""
        now = time.monotonic()
        self._last_seen[client] = now
        active = self._active_by_client[client]
        if self.num_active >= self._max_requests - (self._max_requests // RESERVED_SHARE if active else 0):
            return True
        if not self.near_capacity and len(self._last_seen) <= self._max_requests:
            return False
        self._last_seen = {
            name: last_seen
            for name, last_seen in self._last_seen.items()
            if last_seen > now - RECENT_SECONDS or self._active_by_client[name]
        }
        return active >= max(1, self._max_requests // len(self._last_seen))

    @property
    def retry_after(self) -> int:
        """Seconds until a slot is likely to be free."""
        return max(1, math.ceil(self._mean_seconds))

    def rejection(self, retry_after: int) -> RequestError:
        """The 429 error for a client without a slot."""
        message = (
            f"too many requests: all {self._max_requests} slots, or this client's share of them, are in use: "
            f"retry in {retry_after} s"
        )
        return RequestError(429, message, retry_after=retry_after)

    def check(self, client: str = "") -> None:
        """Raise an error if there is no slot, or the server is stopping."""
        if self.stopping:
            raise RequestError(503, "the server is stopping: retry later", retry_after=1)
        if self.is_full(client):
            raise self.rejection(self.retry_after)

    def admit(self, client: str = "") -> RequestContext:
        """Take a slot."""
        self.check(client)
        self.num_active += 1
        self._active_by_client[client] += 1
        return RequestContext(self._timeout, client)

    def release(self, context: RequestContext) -> None:
        """Free the slot."""
        self.num_active -= 1
        client = str(context.owner.client)
        self._active_by_client[client] -= 1
        if not self._active_by_client[client]:
            del self._active_by_client[client]
        context.close()
        self._mean_seconds += SMOOTHING * (time.monotonic() - context.start_time - self._mean_seconds)


class AdmissionMiddleware:
    """ASGI middleware that admits POST requests, adds their context to the scope, and watches for disconnects."""

    def __init__(self, app: ASGIApp, admission: AdmissionController) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit the request and run the application; GET requests need no slot."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        context = self._admission.admit(scope.get(SCOPE_CLIENT, ""))
        scope[SCOPE_CONTEXT] = context
        pending = [await receive()]
        watcher = asyncio.create_task(_watch_disconnect(receive, context))

        async def replay_receive() -> Message:
            if pending:
                return pending.pop()
            await context.disconnected
            return {"type": "http.disconnect"}

        abandoned = False

        async def send_in_time(message: Message) -> None:
            """Send within the deadline, so that a client that does not read cannot keep its slot."""
            nonlocal abandoned
            try:
                async with asyncio.timeout(context.remaining):  # wait_for would make a task for every message
                    await send(message)
            except TimeoutError:
                abandoned = True
                raise ClientDisconnected from None

        try:
            await self._app(scope, replay_receive, send_in_time)
        except Exception as error:
            # no response can be sent; of a stream that has begun, starlette makes a RuntimeError of it
            if not abandoned and not isinstance(error, ClientDisconnected):
                raise
        except asyncio.CancelledError:  # the shutdown timeout is over
            self._admission.num_cut_off += 1
            raise
        finally:
            watcher.cancel()
            self._admission.release(context)


async def _watch_disconnect(receive: Receive, context: RequestContext) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    context.close()
