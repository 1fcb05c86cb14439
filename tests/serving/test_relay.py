"""The relay between HTTP and models: frames survive any cutting, and answers are those of one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from meristem.serving.app import create_app, create_routes
from meristem.serving.middleware.admission import AdmissionController
from meristem.serving.middleware.early_rejection import EarlyRejection
from meristem.serving.middleware.stack import server_middleware
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.prometheus_metrics import RequestMetrics
from meristem.serving.relay import model_endpoint
from meristem.serving.relay.frames import HEADER, FrameConnection, FrameKind, decode_fields, encode_fields
from meristem.serving.relay.model_endpoint import ModelEndpoint
from meristem.serving.relay.relay_app import RelayApp
from meristem.serving.settings import ServingSettings

FRAMES = st.lists(st.tuples(st.sampled_from(list(FrameKind)), st.integers(0, 2**32 - 1), st.binary(max_size=40)))


@settings(max_examples=60, deadline=None)
@given(frames=FRAMES, cuts=st.lists(st.integers(0, 200)))
def test_frames_arrive_whole_however_the_bytes_are_cut(
    frames: list[tuple[FrameKind, int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(HEADER.pack(len(payload), number, kind) + payload for kind, number, payload in frames)
    received: list[tuple[FrameKind, int, bytes]] = []
    connection = FrameConnection(lambda *frame: received.append(frame), lambda: None)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for begin, end in pairwise(bounds):
        connection.data_received(data[begin:end])
    assert received == frames


def test_fields_and_a_body_with_any_bytes_in_it() -> None:
    headers, body = [(b"x-name", b"caf\xe9"), (b"y", b"")], b'\n{"a": 1}\n\x00\xff'
    fields, received = decode_fields(encode_fields({"headers": headers, "path": "/ä\n"}, body))
    assert received == body
    assert fields == {"headers": [["x-name", "café"], ["y", ""]], "path": "/ä\n"}


@asynccontextmanager
async def relayed(app: Any, **settings: Any) -> AsyncIterator[tuple[Any, RelayApp, AdmissionController]]:
    """The application behind both ends of a relay, in one event loop."""
    serving = ServingSettings.model_validate(settings)
    relay, endpoint = RelayApp(), ModelEndpoint(app)
    for sock, connection in zip(socket.socketpair(), (relay.connection, endpoint.connection), strict=True):
        await asyncio.get_running_loop().create_unix_connection(lambda connection=connection: connection, sock=sock)
    admission = AdmissionController(serving.max_requests, serving.request_timeout)
    whole: Any = relay
    for middleware in reversed(server_middleware(serving, None, admission, RequestMetrics())):
        whole = middleware.cls(whole, *middleware.args, **middleware.kwargs)
    relay.on_stop = lambda number: None
    yield whole, relay, admission
    endpoint.stopped.cancel()
    endpoint.connection.close()
    relay.connection.close()
    await asyncio.sleep(0.01)


REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/runs", None),
    ("GET", "/nowhere/ä?b=%20c", None),
    ("GET", "/v1/models/gpt2", None),
    ("POST", "/fill", {"model": "bert", "text": ["Ada [MASK]", "[MASK] 船"], "top": 2}),
    ("POST", "/fill", {"model": "bert", "text": "no mask"}),
    ("POST", "/fill", {"model": "reviews", "text": "Ada"}),
    ("POST", "/attention", {"model": "gpt2", "text": "Ada walked from the old harbour"}),
    ("POST", "/generate", {"model": "gpt2", "prompt": "Ada", "max_tokens": 5, "seed": 1, "n": 2}),
    ("POST", "/generate", {"model": "gpt2", "prompt": "Ada", "max_tokens": 5, "seed": 1, "stream": True, "n": 2}),
    ("POST", "/v1/completions", {"model": "gpt2", "prompt": "Ada", "max_tokens": 0}),
    ("POST", "/v1/embeddings", {"model": "bert", "input": "Ada"}),
]


def test_answers_are_those_of_one_process(hub: ModelRegistry) -> None:
    alone, routes = create_app(hub), create_routes(hub, ServingSettings.model_validate({}))

    async def answers(app: Any) -> list[tuple[int, bytes, dict[str, str]]]:
        async with AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1") as client:
            responses = [await client.request(method, path, json=body) for method, path, body in REQUESTS]
        return [(item.status_code, item.content, dict(item.headers)) for item in responses]

    async def scenario() -> None:
        async with alone.router.lifespan_context(alone):
            expected = await answers(alone)
        async with routes.router.lifespan_context(routes), relayed(routes) as (app, relay, admission):
            assert await answers(app) == expected
            assert not relay._exchanges
            assert admission.num_active == 0
        assert {status for status, _, _ in expected} == {200, 400, 404, 422}

    asyncio.run(scenario())


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """A stream that never ends of itself, and counts what it has sent."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        scope[model_endpoint.SCOPE_CONTEXT].sent = getattr(scope[model_endpoint.SCOPE_CONTEXT], "sent", 0) + 1000
        if not scope[model_endpoint.SCOPE_CONTEXT].is_active:
            return
        await asyncio.sleep(0)


def test_a_stream_waits_for_its_client_and_ends_with_it() -> None:
    """What nobody reads stays where it is made, within the limit, and nothing is left after the client has gone."""

    async def scenario() -> None:
        contexts: list[Any] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            contexts.append(scope[model_endpoint.SCOPE_CONTEXT])
            await endless(scope, receive, send)

        async with relayed(app) as (whole, relay, admission):
            taken, leaves = asyncio.Semaphore(100), asyncio.Event()
            messages = [{"type": "http.request", "body": b"{}", "more_body": False}]
            num_read = 0

            async def receive() -> Any:
                if messages:
                    return messages.pop()
                await leaves.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                nonlocal num_read
                if not leaves.is_set():
                    await taken.acquire()  # the client reads a hundred parts, then none
                num_read += len(message.get("body", b""))

            scope = {"type": "http", "method": "POST", "path": "/x", "raw_path": b"/x", "query_string": b"",
                     "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")]}  # fmt: skip
            request = asyncio.create_task(whole(scope, receive, send))
            await asyncio.sleep(0.3)
            unread = contexts[0].sent - num_read
            assert num_read > 90_000 and 0 < unread <= model_endpoint.MAX_UNSENT_BYTES + (1 << 15) + 1000
            assert admission.num_active == 1
            leaves.set()
            taken.release()
            await asyncio.wait_for(request, 5)
            await asyncio.sleep(0.05)
            assert admission.num_active == 0 and not relay._exchanges
            assert not contexts[0].is_active

    asyncio.run(scenario())


def test_a_failure_is_an_answer_and_a_lost_process_is_one_too(
    hub: ModelRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    routes = create_routes(hub, ServingSettings.model_validate({}))

    @routes.post("/fails")
    async def fails() -> None:
        raise ValueError("a secret")

    @routes.post("/waits")
    async def waits() -> None:
        await asyncio.sleep(30)

    async def scenario() -> None:
        async with (
            relayed(routes) as (app, relay, admission),
            AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1") as client,
        ):
            failed = await client.post("/fails", json={})
            assert failed.status_code == 500 and "secret" not in failed.text and "error" in failed.json()
            assert failed.headers["x-frame-options"] == "DENY"
            waiting = asyncio.create_task(client.post("/waits", json={}))
            await asyncio.sleep(0.1)
            assert admission.num_active == 1
            relay._on_lost()
            assert (await waiting).status_code == 503
            assert (await client.get("/runs")).status_code == 503
            assert admission.num_active == 0

    asyncio.run(scenario())
    assert "a secret" in caplog.text


def test_early_rejections_are_those_of_the_application() -> None:
    admission, metrics = AdmissionController(1, 10), RequestMetrics(frozenset({"/fill"}))
    early = EarlyRejection(admission, None, metrics)
    scope = {"method": "POST", "path": "/fill", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}

    async def scenario() -> None:
        assert early.reject(scope) is None
        admission.admit("127.0.0.1")
        response = early.reject(scope)
        assert response is not None and response.startswith(b"HTTP/1.1 429 ")
        assert early.reject({**scope, "method": "GET"}) is None
        assert early.reject({**scope, "headers": [(b"host", b"evil.example")]}) is None

        async def no_route(scope: Any, receive: Any, send: Any) -> None:
            raise AssertionError

        app: Any = no_route
        for middleware in reversed(
            server_middleware(ServingSettings.model_validate({}), None, admission, RequestMetrics())
        ):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        async with AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1") as client:
            slow = await client.post("/fill", json={})
        head, _, body = response.partition(b"\r\n\r\n")
        headers = {line.partition(": ")[0]: line.partition(": ")[2] for line in head.decode().split("\r\n")[1:]}
        assert body == slow.content and slow.status_code == 429
        assert headers == dict(slow.headers)

    asyncio.run(scenario())
    assert 'meristem_requests_total{route="/fill",status="429"} 1.0' in metrics.render()
