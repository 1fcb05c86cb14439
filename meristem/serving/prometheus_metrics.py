"""Server metrics in Prometheus text format: requests, latencies, batch sizes, tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


OTHER_ROUTE = "other"


class Histogram:
    """A Prometheus histogram for one set of labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Record a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Cumulative buckets, sum and count."""
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


class ServerMetrics:
    """All metrics of the server; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._latencies: dict[str, Histogram] = {}
        self._batches: dict[str, Histogram] = {}
        self._tokens: Counter[str] = Counter()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.routes: frozenset[str] = frozenset()
        """Paths with metrics of their own; all others are counted as `other`."""

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Count a response and its latency."""
        route = path if path in self.routes else OTHER_ROUTE
        with self._lock:
            self._requests[route, status] += 1
            self._latencies.setdefault(route, Histogram(LATENCY_BUCKETS)).observe(seconds)

    def record_batch(self, kind: str, rows: int) -> None:
        """Record the number of rows of a batch."""
        with self._lock:
            self._batches.setdefault(kind, Histogram(BATCH_SIZE_BUCKETS)).observe(rows)

    def record_tokens(self, kind: str, count: int) -> None:
        """Count prompt or generated tokens."""
        with self._lock:
            self._tokens[kind] += count

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed when metrics are rendered."""
        self._gauges[name] = (description, value)

    def render(self) -> str:
        """All metrics as text."""
        with self._lock:
            return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield from _header_lines("meristem_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield f'meristem_requests_total{{route="{_escape_label(route)}",status="{status}"}} {count}'
        yield from _header_lines(
            "meristem_request_seconds", "histogram", "Time from the request headers to the end of the response."
        )
        for route, histogram in sorted(self._latencies.items()):
            yield from histogram.lines("meristem_request_seconds", f'route="{_escape_label(route)}"')
        yield from _header_lines(
            "meristem_batch_rows", "histogram", "Batch size: requests or generated texts computed together."
        )
        for kind, histogram in sorted(self._batches.items()):
            yield from histogram.lines("meristem_batch_rows", f'kind="{_escape_label(kind)}"')
        yield from _header_lines("meristem_tokens_total", "counter", "Prompt tokens and generated tokens.")
        for kind, count in sorted(self._tokens.items()):
            yield f'meristem_tokens_total{{kind="{_escape_label(kind)}"}} {count}'
        for name, (description, value) in sorted(self._gauges.items()):
            yield from _header_lines(name, "gauge", description)
            yield f"{name} {value():g}"


def _header_lines(name: str, kind: str, description: str) -> Iterator[str]:
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
