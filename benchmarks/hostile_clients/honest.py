"""Honest clients: each sends a fixed list of requests at a fixed rate and compares every response with a reference."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

RATE = 2.0
"""Requests per second of one client."""
TIMEOUT = 120.0
"""Client timeout in seconds."""
ROUNDING = 1e-5
"""Difference of two numbers explained by float32 sums in another order, for another batch size."""
NUMBERS = "largest number difference"
TEXTS = ("The old gardener walked to the harbour.", "Kenji was an innkeeper.", "A boat came home in the evening.")


@dataclass(frozen=True)
class Request:
    """A route and the body sent to it."""

    route: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Response:
    """Status and content; 0 and the reason if there was no response."""

    status: int
    content: bytes


@dataclass
class Measurement:
    """Measurement of the honest clients in one phase; latencies in milliseconds, from when a request was due."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    differing: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, request: Request, response: Response, milliseconds: float, expected: bytes) -> None:
        """Record one response; only status 200 has a latency and is compared."""
        with self.lock:
            self.statuses[str(response.status or "no answer")] += 1
            if response.status != 200:
                return
            self.latencies.setdefault(request.route, []).append(milliseconds)
            if response.content != expected:
                self.differing.append(difference(request, response.content, expected))

    def summary(self) -> dict[str, Any]:
        """The numbers for the results file."""
        all_latencies = [latency for of_route in self.latencies.values() for latency in of_route]
        beyond = [
            difference for difference in self.differing if difference[NUMBERS] is None or difference[NUMBERS] > ROUNDING
        ]
        return {
            "requests": sum(self.statuses.values()),
            "statuses": dict(sorted(self.statuses.items())),
            "errors": sum(self.statuses.values()) - self.statuses["200"],
            "p50 ms": percentile(all_latencies, 0.5),
            "p99 ms": percentile(all_latencies, 0.99),
            "max ms": percentile(all_latencies, 1.0),
            "routes": {
                route: {"requests": len(of_route), "p50 ms": percentile(of_route, 0.5),
                        "p99 ms": percentile(of_route, 0.99)}
                for route, of_route in sorted(self.latencies.items())
            },
            "answers not identical": len(self.differing),
            "answers different beyond rounding": len(beyond),
            NUMBERS: max((difference[NUMBERS] or 0.0 for difference in self.differing), default=0.0),
            "first not identical": [*beyond, *self.differing][:5],
        }  # fmt: skip


def requests() -> list[Request]:
    """The fixed list: greedy and sampled generation, scores, filled masks, embeddings and attention."""
    every: list[Request] = []
    for number, text in enumerate(TEXTS):
        prompt = text.rsplit(" ", 2)[0]
        every += [
            Request("/generate", {"model": "causal", "prompt": prompt, "max_tokens": 8, "temperature": 0}),
            Request("/score", {"model": "causal", "text": text}),
            Request("/fill", {"model": "masked", "text": f"{prompt} [MASK].", "top": 3}),
            Request("/generate", {"model": "causal", "prompt": prompt, "max_tokens": 8, "seed": number}),
            Request("/embed", {"model": "masked", "text": text}),
            Request("/attention", {"model": "causal", "text": text}),
        ]
    return every


def send(port: int, key: str, request: Request) -> Response:
    """Send one request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    try:
        connection.request("POST", request.route, json.dumps(request.body), headers)
        answer = connection.getresponse()
        return Response(answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        return Response(0, repr(error).encode())
    finally:
        connection.close()


def answers_alone(port: int, key: str) -> list[bytes]:
    """Reference responses to each request of the list, without other clients."""
    responses = [send(port, key, request) for request in requests()]
    for request, response in zip(requests(), responses, strict=True):
        if response.status != 200:
            raise SystemExit(f"{request.route} {request.body}: {response.status} {response.content[:500]!r}")
    return [response.content for response in responses]


def measure(port: int, keys: Sequence[str], expected: Sequence[bytes], seconds: float) -> Measurement:
    """Run one client for each key for `seconds`."""
    measurement = Measurement()
    start = time.monotonic()
    clients = [
        threading.Thread(target=_client, args=(port, key, number, len(keys), expected, start, seconds, measurement))
        for number, key in enumerate(keys)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return measurement


def _client(
    port: int, key: str, number: int, count: int, expected: Sequence[bytes], start_time: float, seconds: float,
    measurement: Measurement,
) -> None:  # fmt: skip
    """Send requests at a fixed rate; each client starts at another time and another position of the list.

    A latency counts from when the request was due, so that a slow response does not hide the delay of the next.
    """
    every = requests()
    sent = 0
    while (due := start_time + (sent + number / count) / RATE) < start_time + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        request_index = (sent + number * 5) % len(every)
        response = send(port, key, every[request_index])
        measurement.add(every[request_index], response, 1000 * (time.monotonic() - due), expected[request_index])
        sent += 1


def percentile(values: Sequence[float], share: float) -> float | None:
    """The quantile of the values."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None


def difference(request: Request, content: bytes, expected: bytes) -> dict[str, Any]:
    """The difference from the reference: the largest difference of two numbers, None if the structure differs."""
    return {"route": request.route, "body": request.body,
            NUMBERS: _distance(json.loads(content), json.loads(expected))}  # fmt: skip


def _distance(first: Any, right: Any) -> float | None:
    if isinstance(first, dict) and isinstance(right, dict) and first.keys() == right.keys():
        pairs = [(first[key], right[key]) for key in first]
    elif isinstance(first, list) and isinstance(right, list) and len(first) == len(right):
        pairs = list(zip(first, right, strict=True))
    elif isinstance(first, int | float) and isinstance(right, int | float):
        return abs(first - right)
    else:
        return 0.0 if first == right else None
    distances = [_distance(*pair) for pair in pairs]
    return None if None in distances else max((distance for distance in distances if distance is not None), default=0.0)
