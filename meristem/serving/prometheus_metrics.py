"""Server metrics in Prometheus text format: requests, latencies, batch sizes, tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OTHER_ROUTE = "other"


class MetricsRegistry(CollectorRegistry):
    """A registry without the `_created` series, which the library can turn off only for the whole process."""

    def collect(self) -> Iterator[Metric]:
        """All metrics with their samples."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _MetricsGroup:
    """Metrics in a registry of their own; thread-safe."""

    def __init__(self) -> None:
        self._registry = MetricsRegistry()

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed when metrics are rendered."""
        Gauge(name, description, registry=self._registry).set_function(value)

    def render(self) -> str:
        """All metrics as text."""
        return generate_latest(self._registry).decode()


class RequestMetrics(_MetricsGroup):
    """Requests and latencies of one server, counted where its connections are."""

    def __init__(self, routes: frozenset[str] = frozenset()) -> None:
        """`routes` are the paths with metrics of their own; all others are counted as `other`."""
        super().__init__()
        self._routes = routes
        self._requests = Counter(
            "meristem_requests_total", "Requests by route and status.", ("route", "status"), registry=self._registry
        )
        self._latencies = Histogram(
            "meristem_request_seconds",
            "Time from the request headers to the end of the response.",
            ("route",),
            registry=self._registry,
            buckets=LATENCY_BUCKETS,
        )

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Count a response and its latency."""
        route = path if path in self._routes else OTHER_ROUTE
        self._requests.labels(route, status).inc()
        self._latencies.labels(route).observe(seconds)


class ServerMetrics(_MetricsGroup):
    """Batches and tokens of one server, counted where its models are."""

    def __init__(self) -> None:
        super().__init__()
        self._batches = Histogram(
            "meristem_batch_rows",
            "Batch size: requests or generated texts computed together.",
            ("kind",),
            registry=self._registry,
            buckets=BATCH_SIZE_BUCKETS,
        )
        self._tokens = Counter(
            "meristem_tokens_total", "Prompt tokens and generated tokens.", ("kind",), registry=self._registry
        )

    def record_batch(self, kind: str, rows: int) -> None:
        """Record the number of rows of a batch."""
        self._batches.labels(kind).observe(rows)

    def record_tokens(self, kind: str, count: int) -> None:
        """Count prompt or generated tokens."""
        self._tokens.labels(kind).inc(count)
