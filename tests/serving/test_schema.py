"""Whatever fits the description of a route, and whatever does not: it is answered, and never with a failure of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, settings

schemathesis = pytest.importorskip("schemathesis")


from meristem.serving.app import create_app
from meristem.serving.hub import Hub
from meristem.serving.settings import ServingSettings

EXAMPLES = 5  # a route; benchmarks/serving.py asks a thousand times


@pytest.fixture(scope="module")
def description(hub: Hub) -> Iterator[Any]:
    """The application as it describes itself; few runs, so that most requests need not name one."""
    app = create_app(Hub({name: hub.runs[name].revived for name in ("gpt2", "bert", "reviews")}),
                     ServingSettings.model_validate({"deadline": 5}))  # fmt: skip
    yield schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "localhost"})


schema = schemathesis.pytest.from_fixture("description")


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_breaks(case: Any) -> None:
    answer = case.call(headers={"host": "localhost"}, base_url="http://localhost")
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    case.validate_response(answer, checks=(schemathesis.checks.not_a_server_error,))
