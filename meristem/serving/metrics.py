"""What the server counts, in the text format that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


OTHER = "other"


class Histogram:
    """How often values fell below each bound, for one set of labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Buckets that add up, the sum and the number."""
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """Everything that is counted; several threads may count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches: dict[str, Histogram] = {}
        self._tokens: Counter[str] = Counter()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.routes: frozenset[str] = frozenset()
        """The paths that are counted by name; all others are one."""

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request that was answered."""
        route = path if path in self.routes else OTHER
        with self._lock:
            self._requests[route, status] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).add(seconds)

    def batch(self, kind: str, rows: int) -> None:
        """Rows that were computed together."""
        with self._lock:
            self._batches.setdefault(kind, Histogram(ROWS)).add(rows)

    def tokens(self, kind: str, count: int) -> None:
        """Tokens that were read as prompts, or written."""
        with self._lock:
            self._tokens[kind] += count

    def gauge(self, name: str, told: str, value: Callable[[], float]) -> None:
        """Something that is looked up whenever somebody asks."""
        self._gauges[name] = (told, value)

    def text(self) -> str:
        """All of it."""
        with self._lock:
            return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield from _head("meristem_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield f'meristem_requests_total{{route="{_label(route)}",status="{status}"}} {count}'
        yield from _head("meristem_request_seconds", "histogram", "Time from a request's head to its answer's end.")
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("meristem_request_seconds", f'route="{_label(route)}"')
        yield from _head("meristem_batch_rows", "histogram", "Requests, or texts being written, computed together.")
        for kind, histogram in sorted(self._batches.items()):
            yield from histogram.lines("meristem_batch_rows", f'kind="{_label(kind)}"')
        yield from _head("meristem_tokens_total", "counter", "Tokens read as prompts, and written.")
        for kind, count in sorted(self._tokens.items()):
            yield f'meristem_tokens_total{{kind="{_label(kind)}"}} {count}'
        for name, (told, value) in sorted(self._gauges.items()):
            yield from _head(name, "gauge", told)
            yield f"{name} {value():g}"


def _head(name: str, kind: str, told: str) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
