"""Clients of a server, in a process of their own: each asks again as soon as it has its answer, or at a given rate.

    python benchmarks/serving_load.py PORT ROUTE BODIES.json --clients 32 --seconds 20 [--rate 400]

Prints one JSON object: the latencies of answers by status, in milliseconds, and what the load itself took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = "POST {route} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Loaded:
    """What a load found."""

    seconds: float
    latencies: dict[int, list[float]]
    """By status, in milliseconds."""
    tokens: int
    busy: float
    """How many cores the load itself took, which the server lacked."""

    def rate(self, status: int = 200) -> float:
        """Answers a second."""
        return len(self.latencies.get(status, ())) / self.seconds

    def quantile(self, share: float, status: int = 200) -> float:
        """So much of the answers were faster than this many milliseconds."""
        found = sorted(self.latencies.get(status, ()))
        return found[min(len(found) - 1, int(share * len(found)))] if found else float("nan")

    @property
    def median(self) -> float:
        """Of the answers that were given."""
        return statistics.median(self.latencies.get(200) or [float("nan")])


def load(port: int, route: str, bodies: Sequence[Any], *, clients: int, seconds: float, rate: float = 0.0) -> Loaded:
    """The same from another process, so that nobody shares a lock with the server."""
    command = [sys.executable, __file__, str(port), route, "-", "--clients", str(clients), "--seconds", str(seconds),
               "--rate", str(rate)]  # fmt: skip
    done = subprocess.run(command, input=json.dumps(list(bodies)), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    found["latencies"] = {int(key): value for key, value in found["latencies"].items()}
    return Loaded(**found)


class Clients:
    """All of them, and what they found."""

    def __init__(self, port: int, route: str, bodies: Sequence[Any], rate: float, seconds: float) -> None:
        plain = [json.dumps(body).encode() for body in bodies]
        self.requests = [HEAD.format(route=route, size=len(one)).encode() + one for one in plain]
        self.port, self.rate = port, rate
        self.begun = time.monotonic()
        self.until = self.begun + seconds
        self.latencies: dict[int, list[float]] = defaultdict(list)
        self.tokens = self.sent = 0

    def turn(self) -> tuple[float, bytes]:
        """When the next request is due, and what it says."""
        due = self.begun + self.sent / self.rate if self.rate else 0.0
        self.sent += 1
        return due, self.requests[self.sent % len(self.requests)]

    def count(self, status: int, seconds: float, body: bytes) -> None:
        """An answer."""
        self.latencies[status].append(seconds * 1000)
        if status == 200 and b'"texts"' in body[:200]:
            self.tokens += sum(len(text["tokens"]) for text in json.loads(body)["texts"])

    async def client(self) -> None:
        """One connection at a time, opened anew where the server closes it."""
        loop = asyncio.get_running_loop()
        while time.monotonic() < self.until:
            try:
                _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
                await connection.over
            except ConnectionError:
                self.latencies[0].append(0.0)


class Connection(asyncio.Protocol):
    """Asks, and asks again: without streams, since whatever a client costs on the same cores the server lacks."""

    def __init__(self, everybody: Clients) -> None:
        self._all, self._loop = everybody, asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._heard, self._asked = b"", 0.0

    def connection_made(self, transport: Any) -> None:
        """The first request."""
        self._transport = transport
        self._next()

    def _next(self) -> None:
        due, request = self._all.turn()
        wait = due - time.monotonic()
        if wait > 0:
            self._loop.call_later(wait, self._ask, request)
        else:
            self._ask(request)

    def _ask(self, request: bytes) -> None:
        if time.monotonic() >= self._all.until or self._transport.is_closing():
            self._transport.close()
            return
        self._heard, self._asked = b"", time.monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """A part of an answer whose length is known."""
        self._heard += data
        head, found, body = self._heard.partition(b"\r\n\r\n")
        if not found or len(body) < int(LENGTH.search(head)[1]):  # type: ignore[index]
            return
        self._all.count(int(head[9:12]), time.monotonic() - self._asked, body)
        self._asked = 0.0
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        """By the server, where an answer was still waited for."""
        if self._asked:
            self._all.count(0, 0.0, b"")
        self.over.set_result(None)


async def main() -> None:
    """Read the arguments, and load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("route")
    parser.add_argument("bodies")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=0.0)
    told = parser.parse_args()
    text = sys.stdin.read() if told.bodies == "-" else Path(told.bodies).read_text(encoding="utf-8")
    all_of_them = Clients(told.port, told.route, json.loads(text), told.rate, told.seconds)
    await asyncio.gather(*(all_of_them.client() for _ in range(told.clients)))
    seconds = time.monotonic() - all_of_them.begun
    found = {"seconds": seconds, "latencies": all_of_them.latencies, "tokens": all_of_them.tokens}
    print(json.dumps({**found, "busy": time.process_time() / seconds}))


if __name__ == "__main__":
    import uvloop  # a slow load would take from the server what it measures

    uvloop.run(main())
