"""Load generator: clients that send the next request after each response (closed loop), or at a fixed rate.

    python benchmarks/serving_load.py PORT ROUTE BODIES.json --clients 32 --seconds 20 [--rate 400]

Prints one JSON object: latencies by status in milliseconds, and the CPU time of the load itself.
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
    """The result of a load."""

    seconds: float
    latencies: dict[int, list[float]]
    """Status → latencies in milliseconds."""
    tokens: int
    busy: float
    """Cores used by the load itself, which the server could not use."""

    def rate(self, status: int = 200) -> float:
        """Responses per second."""
        return len(self.latencies.get(status, ())) / self.seconds

    def quantile(self, share: float, status: int = 200) -> float:
        """The latency quantile in milliseconds."""
        sorted_latencies = sorted(self.latencies.get(status, ()))
        return (
            sorted_latencies[min(len(sorted_latencies) - 1, int(share * len(sorted_latencies)))]
            if sorted_latencies
            else float("nan")
        )

    @property
    def median(self) -> float:
        """Median latency of successful responses."""
        return statistics.median(self.latencies.get(200) or [float("nan")])


def load(port: int, route: str, bodies: Sequence[Any], *, clients: int, seconds: float, rate: float = 0.0) -> Loaded:
    """Run a load in another process, so that it shares no lock with the server."""
    command = [sys.executable, __file__, str(port), route, "-", "--clients", str(clients), "--seconds", str(seconds),
               "--rate", str(rate)]  # fmt: skip
    completed = subprocess.run(command, input=json.dumps(list(bodies)), capture_output=True, text=True, check=True)
    payload = json.loads(completed.stdout)
    payload["latencies"] = {int(key): value for key, value in payload["latencies"].items()}
    return Loaded(**payload)


class Clients:
    """All clients and their latencies."""

    def __init__(self, port: int, route: str, bodies: Sequence[Any], rate: float, seconds: float) -> None:
        plain = [json.dumps(body).encode() for body in bodies]
        self.requests = [HEAD.format(route=route, size=len(address)).encode() + address for address in plain]
        self.port, self.rate = port, rate
        self.begun = time.monotonic()
        self.until = self.begun + seconds
        self.latencies: dict[int, list[float]] = defaultdict(list)
        self.tokens = self.sent = 0

    def turn(self) -> tuple[float, bytes]:
        """The time of the next request, and its bytes."""
        due = self.begun + self.sent / self.rate if self.rate else 0.0
        self.sent += 1
        return due, self.requests[self.sent % len(self.requests)]

    def count(self, status: int, seconds: float, body: bytes) -> None:
        """Record a response."""
        self.latencies[status].append(seconds * 1000)
        if status == 200 and b'"texts"' in body[:200]:
            self.tokens += sum(len(text["tokens"]) for text in json.loads(body)["texts"])

    async def client(self) -> None:
        """One client: a connection at a time, reopened if the server closes it."""
        loop = asyncio.get_running_loop()
        while time.monotonic() < self.until:
            try:
                _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
                await connection.over
            except ConnectionError:
                self.latencies[0].append(0.0)


class Connection(asyncio.Protocol):
    """Sends requests repeatedly; a raw protocol, cheaper than streams: the load takes CPU time from the server."""

    def __init__(self, everybody: Clients) -> None:
        self._all, self._loop = everybody, asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._heard, self._asked = b"", 0.0

    def connection_made(self, transport: Any) -> None:
        """Send the first request."""
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
        """Collect a response of known length."""
        self._heard += data
        head, separator_found, body = self._heard.partition(b"\r\n\r\n")
        if not separator_found or len(body) < int(LENGTH.search(head)[1]):  # type: ignore[index]
            return
        self._all.count(int(head[9:12]), time.monotonic() - self._asked, body)
        self._asked = 0.0
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by the server while a response was pending."""
        if self._asked:
            self._all.count(0, 0.0, b"")
        self.over.set_result(None)


async def main() -> None:
    """Parse the arguments and run the load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("route")
    parser.add_argument("bodies")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=0.0)
    options = parser.parse_args()
    text = sys.stdin.read() if options.bodies == "-" else Path(options.bodies).read_text(encoding="utf-8")
    all_of_them = Clients(options.port, options.route, json.loads(text), options.rate, options.seconds)
    await asyncio.gather(*(all_of_them.client() for _ in range(options.clients)))
    seconds = time.monotonic() - all_of_them.begun
    load_result = {"seconds": seconds, "latencies": all_of_them.latencies, "tokens": all_of_them.tokens}
    print(json.dumps({**load_result, "busy": time.process_time() / seconds}))


if __name__ == "__main__":
    import uvloop  # a slow load generator would take CPU time from the server

    uvloop.run(main())
