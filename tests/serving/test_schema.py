"""Whatever fits the description of a route, and whatever does not: it is answered, and never with a failure of ours."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings

schemathesis = pytest.importorskip("schemathesis")
core = pytest.importorskip("schemathesis.core")
EXAMPLES = 3
"""Of each kind and route; benchmarks/serving.py asks a thousand times."""
MODES = {"what fits": schemathesis.GenerationMode.POSITIVE, "what does not": schemathesis.GenerationMode.NEGATIVE}


OPENAI = {"completions": "generate", "chat/completions": "chat", "embeddings": "embed"}


def run_for_route(hub: ModelRegistry, path: str) -> str:
    """A run that can do what a route asks for, since made-up names are refused before any work."""
    verb = path.removeprefix("/v1/").strip("/")
    return next((run.name for run in hub.runs.values() if OPENAI.get(verb, verb) in run.routes), "nobody")


def sent(client: TestClient, case: Any, run: str | None) -> Any:
    """A request as it was thought up, but for the run; bodies that are no JSON are sent as such."""
    headers = {name: str(value) for name, value in (case.headers or {}).items() if str(value).isprintable()}
    headers = {name: value for name, value in headers.items() if (name + value).isascii()}
    empty = isinstance(case.body, type(core.NOT_SET))
    named = {**case.body, "model": run} if run is not None and isinstance(case.body, dict) else case.body
    body = b"" if empty else json.dumps(named, default=str).encode()
    headers |= {"host": "localhost", **({} if empty else {"content-type": "application/json"})}
    return client.request(case.method, case.formatted_path, headers=headers, content=body)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_breaks(hub: ModelRegistry, mode: str) -> None:
    app = create_app(hub, ServingSettings.model_validate({"request_timeout": 5}))
    described = schemathesis.openapi.from_dict(app.openapi())
    statuses: Counter[int] = Counter()
    worked: set[str] = set()
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        for operation_result in described.get_all_operations():
            operation = operation_result.ok()

            @given(case=operation.as_strategy(generation_mode=MODES[mode]))
            @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
                      suppress_health_check=list(HealthCheck))  # fmt: skip
            def ask(case: Any) -> None:
                run = run_for_route(hub, case.operation.path) if mode == "what fits" else None
                answer = sent(client, case, run)
                statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    worked.add(case.operation.path)
                assert answer.status_code < 500 or answer.status_code == 503, answer.text

            with suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
                ask()
        assert client.get("/health/ready").status_code == 200
    assert sum(statuses.values()) > 20
    assert len(worked) > 12 if mode == "what fits" else 422 in statuses
