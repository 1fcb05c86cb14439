from __future__ import annotations

from meristem.serving.prometheus_metrics import ServerMetrics


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = ServerMetrics()
    metrics.routes = frozenset(('/a"b\n', "/fill"))
    metrics.record_request("/anything", 404, 0.1)
    metrics.record_request('/a"b\n', 200, 0.02)
    metrics.record_request("/fill", 429, 100.0)
    metrics.record_batch("bert fill", 3)
    metrics.record_tokens("written", 5)
    metrics.add_gauge("meristem_inside", "Inside.", lambda: 2)
    lines = metrics.render().splitlines()
    assert 'meristem_requests_total{route="/a\\"b\\n",status="200"} 1' in lines
    assert 'meristem_requests_total{route="other",status="404"} 1' in lines
    assert 'meristem_request_seconds_bucket{route="/fill",le="60.0"} 0' in lines
    assert 'meristem_request_seconds_bucket{route="/fill",le="+Inf"} 1' in lines
    assert 'meristem_batch_rows_bucket{kind="bert fill",le="2"} 0' in lines
    assert 'meristem_batch_rows_bucket{kind="bert fill",le="4"} 1' in lines
    assert 'meristem_tokens_total{kind="written"} 5' in lines
    assert "meristem_inside 2" in lines
    assert metrics.render().endswith("\n")
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) == 5
