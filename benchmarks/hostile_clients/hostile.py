"""Hostile clients in a separate process: every kind in its threads, repeated until the time is up.

    python -m benchmarks.hostile_clients.hostile PORT SECONDS [--kinds KIND …] < KEYS

Prints one JSON object: by kind the requests with their status codes, and the processor seconds this process took.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

CONNECTIONS = 300
"""Idle connections opened by one client."""
UNREAD_STREAMS = 4
"""Threads with two unread streams each."""
TRICKLING = 8
"""Threads of each slow-sending kind."""
PAUSE = 0.2
"""Seconds between two requests of a kind: CPU time of the clients is taken from the server."""
LONG = {"model": "causal", "prompt": "The", "max_tokens": 2000, "min_tokens": 2000}


class HostileClient:
    """API key, end time and status counts of one kind of client."""

    def __init__(self, port: int, key: str, end: float, seed: int) -> None:
        self.port, self.end = port, end
        self.random = random.Random(seed)
        self.statuses: Counter[str] = Counter()
        self._lines = f"host: 127.0.0.1\r\ncontent-type: application/json\r\nauthorization: Bearer {key}\r\n"

    @property
    def active(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.end

    def head(self, route: str, length: int) -> bytes:
        """Request line and headers."""
        return f"POST {route} HTTP/1.1\r\n{self._lines}content-length: {length}\r\n\r\n".encode()

    def request(self, route: str, body: Any) -> bytes:
        """A complete request; a body of bytes is not encoded."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.head(route, len(content)) + content

    @contextmanager
    def connection(self, buffer: int | None = None) -> Iterator[socket.socket]:
        """A connection with a receive buffer of `buffer` bytes; the server may close it at any time."""
        with socket.socket() as sock:
            if buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            sock.settimeout(90)
            sock.connect(("127.0.0.1", self.port))
            yield sock

    def count(self, connection: socket.socket) -> None:
        """Read the status line and count it."""
        try:
            received = connection.recv(4096)
        except TimeoutError:
            self.statuses["no answer"] += 1
        except OSError:
            self.statuses["closed"] += 1
        else:
            self.statuses[received[9:12].decode("ascii", "replace") if received else "closed"] += 1

    def exchange(self, data: bytes) -> None:
        """Send a request, count its status and disconnect."""
        with self.connection() as connection:
            with suppress(OSError):  # the server may answer and close before everything is sent
                connection.sendall(data)
            self.count(connection)

    def rest(self, seconds: float = PAUSE) -> None:
        """Wait, but not past the end."""
        time.sleep(max(0.0, min(seconds, self.end - time.monotonic())))


def unread_streams(client: HostileClient) -> None:
    """Long streams that are not read until the server disconnects."""
    with client.connection(4096) as first, client.connection(4096) as second:
        for connection in (first, second):
            connection.sendall(client.request("/generate", {**LONG, "n": 16, "top": 5, "stream": True}))
        client.rest(15)
        client.count(first)
        client.count(second)


def trickled_headers(client: HostileClient) -> None:
    """Headers sent one byte every half second (slowloris)."""
    _trickle(client, client.head("/score", 20))


def trickled_body(client: HostileClient) -> None:
    """A body sent one byte every half second."""
    data = client.request("/score", b"{" + b" " * 5000)
    _trickle(client, data, client.head("/score", 5001))


def _trickle(client: HostileClient, data: bytes, at_once: bytes = b"") -> None:
    with client.connection() as connection:
        connection.sendall(at_once)
        with suppress(OSError):
            for index in range(len(at_once), len(data)):
                if not client.active:
                    client.statuses["cut by the end"] += 1
                    return
                connection.sendall(data[index : index + 1])
                client.rest(0.5)
        client.count(connection)


def huge_prompts(client: HostileClient) -> None:
    """Prompts and texts up to the limit of characters, and beyond it."""
    length = client.random.choice((50_000, 99_000, 200_000))
    text = "The old harbour. " * (length // 17)
    route, name = client.random.choice((("/generate", "prompt"), ("/score", "text"), ("/embed", "text")))
    client.exchange(client.request(route, {"model": "causal", name: text}))


def huge_generations(client: HostileClient) -> None:
    """n × max_tokens at the limit, or far beyond."""
    n, tokens = client.random.choice(((16, 2048), (16, 2000), (10**9, 100), (16, 10**9)))
    client.exchange(client.request("/generate", {**LONG, "n": n, "max_tokens": tokens}))


def long_words(client: HostileClient) -> None:
    """Texts of a single word, of maximum length or of a megabyte."""
    length = client.random.choice((100_000, 1_000_000, 1 << 20))
    route, model = client.random.choice((("/score", "causal"), ("/fill", "masked"), ("/embed", "masked")))
    client.exchange(client.request(route, {"model": model, "text": "a" * (length - 7) + " [MASK]"}))


def malformed_json(client: HostileClient) -> None:
    """Bodies that are not JSON, are nested too deeply or do not match the schema."""
    bodies = (b"{", b"[" * 100_000, b'{"text": "\\ud800"}', b"\xff\xfe", b'{"text": 1e999}', b"null", b'{"a":' * 5000,
              json.dumps({"model": "masked", "text": ["[MASK]"] * 1000}).encode())  # fmt: skip
    route = client.random.choice(("/score", "/fill", "/generate"))
    client.exchange(client.request(route, client.random.choice(bodies)))


def disconnects(client: HostileClient) -> None:
    """Clients that leave a stream after its first bytes, or in the middle of a body."""
    with client.connection() as connection:
        data = client.request("/generate", {**LONG, "stream": True})
        if client.random.random() < 0.3:
            connection.sendall(data[: client.random.randrange(1, len(data))])
            client.statuses["left before the end of the request"] += 1
            return
        connection.sendall(data)
        client.count(connection)


def many_connections(client: HostileClient) -> None:
    """Hundreds of idle connections opened at once."""
    opened = []
    try:
        for _ in range(CONNECTIONS):
            opened.append(socket.create_connection(("127.0.0.1", client.port), timeout=10))
            client.statuses["opened"] += 1
        client.rest(5)
    finally:
        for connection in opened:
            connection.close()


def floods(client: HostileClient) -> None:
    """Full batches of maximum-length texts, with short pauses."""
    body = {"model": "masked", "text": ["The old gardener walked to the harbour. " * 12] * 64}
    client.exchange(client.request("/embed", body))


KINDS: dict[Callable[[HostileClient], None], int] = {
    unread_streams: UNREAD_STREAMS, trickled_headers: TRICKLING, trickled_body: TRICKLING, huge_prompts: 1,
    huge_generations: 1, long_words: 1, malformed_json: 1, disconnects: 1, many_connections: 1, floods: 1,
}  # fmt: skip
"""Kind → number of threads."""


def attack(kind: Callable[[HostileClient], None], client: HostileClient) -> None:
    """Repeat one kind until the end; connection errors are counted, not raised."""
    while client.active:
        try:
            kind(client)
        except OSError as error:
            client.statuses[type(error).__name__] += 1
        client.rest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--kinds", nargs="+", choices=[kind.__name__ for kind in KINDS], help="only these")
    options = parser.parse_args()
    keys, end = sys.stdin.read().split(), time.monotonic() + options.seconds
    clients: dict[str, list[HostileClient]] = {}
    for index, (kind, threads) in enumerate(KINDS.items()):
        for number in range(threads if not options.kinds or kind.__name__ in options.kinds else 0):
            client = HostileClient(options.port, keys[index % len(keys)], end, seed=100 * index + number)
            clients.setdefault(kind.__name__, []).append(client)
            threading.Thread(target=attack, args=(kind, client), daemon=True).start()
    time.sleep(max(0.0, end - time.monotonic()))
    statuses = {kind: sum((attack.statuses for attack in every), Counter()) for kind, every in clients.items()}
    counts = {kind: dict(sorted(statuse.items())) for kind, statuse in statuses.items()}
    print(json.dumps({"kinds": counts, "processor seconds": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
