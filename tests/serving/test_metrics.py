from __future__ import annotations

import gc

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from meristem.serving.prometheus_metrics import BATCH_SIZE_BUCKETS, LATENCY_BUCKETS, RequestMetrics, ServerMetrics


def samples_of(*metrics: RequestMetrics | ServerMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) → value, as Prometheus reads them."""
    families = text_string_to_metric_families("".join(item.render() for item in metrics))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_text_is_what_prometheus_reads() -> None:
    requests, metrics = RequestMetrics(frozenset(('/a"b\n', "/fill"))), ServerMetrics()
    requests.record_request("/anything", 404, 0.1)
    requests.record_request('/a"b\n', 200, 0.02)
    requests.record_request("/fill", 429, 100.0)
    metrics.record_batch("bert fill", 3)
    metrics.record_tokens("written", 5)
    metrics.add_gauge("meristem_inside", "Inside.", lambda: 2)
    samples = samples_of(requests, metrics)
    assert samples["meristem_requests_total", (("route", '/a"b\n'), ("status", "200"))] == 1
    assert samples["meristem_requests_total", (("route", "other"), ("status", "404"))] == 1
    assert samples["meristem_request_seconds_bucket", (("le", "60.0"), ("route", "/fill"))] == 0
    assert samples["meristem_request_seconds_bucket", (("le", "+Inf"), ("route", "/fill"))] == 1
    assert samples["meristem_request_seconds_sum", (("route", "/fill"),)] == 100
    assert samples["meristem_batch_rows_bucket", (("kind", "bert fill"), ("le", "2.0"))] == 0
    assert samples["meristem_batch_rows_bucket", (("kind", "bert fill"), ("le", "4.0"))] == 1
    assert samples["meristem_tokens_total", (("kind", "written"),)] == 5
    assert samples["meristem_inside", ()] == 2
    assert metrics.render().endswith("\n") and requests.render().endswith("\n")
    lines = [*requests.render().splitlines(), *metrics.render().splitlines()]
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) == 5


def test_the_bounds_of_the_buckets_stay() -> None:
    requests, metrics = RequestMetrics(), ServerMetrics()
    requests.record_request("/fill", 200, 0.02)
    metrics.record_batch("bert fill", 3)
    bounds: dict[str, list[float]] = {}
    for name, labels in samples_of(requests, metrics):
        if name.endswith("_bucket"):
            bounds.setdefault(name, []).append(float(dict(labels)["le"]))
    infinity = float("inf")
    assert bounds["meristem_request_seconds_bucket"] == [*LATENCY_BUCKETS, infinity]
    assert bounds["meristem_batch_rows_bucket"] == [*BATCH_SIZE_BUCKETS, infinity]


def test_two_servers_of_a_process_share_nothing() -> None:
    before = list(gc.callbacks)
    server_metrics, other = ServerMetrics(), ServerMetrics()
    server_metrics.add_gauge("meristem_inside", "Inside.", lambda: 1)
    other.add_gauge("meristem_inside", "Inside.", lambda: 2)
    server_metrics.record_tokens("written", 5)
    assert samples_of(other)["meristem_inside", ()] == 2
    assert not any(name == "meristem_tokens_total" for name, _ in samples_of(other))
    assert not any(metric.name.startswith("meristem") for metric in REGISTRY.collect())
    assert gc.callbacks == before
