"""Clients of a server, in a process of their own: each asks again as soon as it has its answer, or at a given rate.

    python benchmarks/serving_load.py PORT ROUTE BODIES.json --clients 32 --seconds 20 [--rate 400]

Prints one JSON object: answers by status, and the latencies of each in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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


@dataclass(frozen=True)
class Loaded:
    """What a load found."""

    seconds: float
    latencies: dict[int, list[float]]
    """By status, in milliseconds."""
    tokens: int

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
    return Loaded(found["seconds"], {int(key): value for key, value in found["latencies"].items()}, found["tokens"])


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """One answer with a known length."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, size = int(head[9:12]), 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            size = int(line[15:])
    return status, await reader.readexactly(size)


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

    async def turn(self) -> bool:
        """Wait until the next request is due; false when time is over."""
        if self.rate:
            due = self.begun + self.sent / self.rate
            self.sent += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        else:
            self.sent += 1
        return time.monotonic() < self.until

    async def client(self) -> None:
        """One connection, opened anew where the server closes it."""
        while time.monotonic() < self.until:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                while await self.turn():
                    begun = time.monotonic()
                    writer.write(self.requests[self.sent % len(self.requests)])
                    status, body = await answer(reader)
                    self.latencies[status].append((time.monotonic() - begun) * 1000)
                    if status == 200 and b'"texts"' in body[:200]:
                        self.tokens += sum(len(text["tokens"]) for text in json.loads(body)["texts"])
                writer.close()
            except (ConnectionError, asyncio.IncompleteReadError):
                self.latencies[0].append(0.0)


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
    print(json.dumps({"seconds": seconds, "latencies": all_of_them.latencies, "tokens": all_of_them.tokens}))


if __name__ == "__main__":
    import uvloop  # a slow load would take from the server what it measures

    uvloop.run(main())
