"""Whatever fits the description of a route, and whatever does not: it is answered, and never with a failure of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from meristem.serving.app import create_app
from meristem.serving.hub import Hub
from meristem.serving.settings import ServingSettings

schemathesis = pytest.importorskip("schemathesis")
core = pytest.importorskip("schemathesis.core")
EXAMPLES = 3
"""Of each kind and route; benchmarks/serving.py asks a thousand times."""
MODES = {"what fits": schemathesis.GenerationMode.POSITIVE, "what does not": schemathesis.GenerationMode.NEGATIVE}


def sent(client: TestClient, case: Any) -> Any:
    """A request as it was thought up; bodies that are no JSON are sent as such."""
    headers = {name: str(value) for name, value in (case.headers or {}).items() if str(value).isprintable()}
    headers = {name: value for name, value in headers.items() if (name + value).isascii()}
    empty = isinstance(case.body, type(core.NOT_SET))
    body = b"" if empty else json.dumps(case.body, default=str).encode()
    headers |= {"host": "localhost", **({} if empty else {"content-type": "application/json"})}
    return client.request(case.method, case.formatted_path, headers=headers, content=body)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_breaks(hub: Hub, mode: str) -> None:
    few = Hub({name: hub.runs[name].revived for name in ("gpt2", "bert", "reviews")})
    app = create_app(few, ServingSettings.model_validate({"deadline": 5}))
    described = schemathesis.openapi.from_dict(app.openapi())
    statuses: dict[int, int] = {}
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        for found in described.get_all_operations():
            operation = found.ok()

            @given(case=operation.as_strategy(generation_mode=MODES[mode]))
            @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
                      suppress_health_check=list(HealthCheck))  # fmt: skip
            def ask(case: Any) -> None:
                answer = sent(client, case)
                statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
                assert answer.status_code < 500 or answer.status_code == 503, answer.text

            with suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
                ask()
        assert client.get("/health/ready").status_code == 200
    assert sum(statuses.values()) > 20
    assert 200 in statuses if mode == "what fits" else 422 in statuses
