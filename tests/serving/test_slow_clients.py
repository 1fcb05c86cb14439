"""Clients that do not read, trickle bodies or only hold connections: they are disconnected, and others are answered."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from meristem.generation.continuous_batching import SampledToken
from meristem.generation.settings import SamplingSettings
from meristem.serving import http_protocol
from meristem.serving.app import create_app
from meristem.serving.generation_worker import MAX_UNREAD_TOKENS, GenerationJob, GenerationUpdate
from meristem.serving.http_protocol import TimeoutHttpProtocol
from meristem.serving.middleware.admission import AdmissionController, AdmissionMiddleware, RequestContext
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings

LONG = {"model": "gpt2", "prompt": "Ada", "max_tokens": 2000, "min_tokens": 2000, "n": 16, "top": 5, "stream": True}
POST = "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n"


class ThreadServer:
    """A real server on a port of this machine, in a thread."""

    def __init__(self, hub: ModelRegistry, **settings: Any) -> None:
        self.app = create_app(hub, ServingSettings.model_validate({"max_requests": 4, "port": 0, **settings}))
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        config = uvicorn.Config(
            self.app, http=TimeoutHttpProtocol, log_config=None, log_level="critical", limit_concurrency=24
        )
        self.server = uvicorn.Server(config)
        self.server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[self.socket]), daemon=True)
        self.thread.start()
        assert until(lambda: self.server.started)

    @property
    def inside(self) -> int:
        return int(self.app.state.engine.admission.num_active)

    def open(self, data: bytes = b"", *, buffer: int | None = None) -> socket.socket:
        sock = socket.socket()
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.settimeout(20)
        sock.connect(("127.0.0.1", self.port))
        sock.sendall(data)
        return sock

    def status(self, path: str = "/fill", body: Any = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        body = {"model": "bert", "text": "Ada [MASK]"} if body is None else body
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        status = connection.getresponse().status
        connection.close()
        return status


def until(true: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def server(hub: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadServer]:
    for name in ("WRITE_STALL_TIMEOUT", "BODY_TIMEOUT"):
        monkeypatch.setattr(http_protocol, name, 0.5)
    thread_server = ThreadServer(hub)
    yield thread_server
    thread_server.server.should_exit = True
    thread_server.server.force_exit = True
    thread_server.thread.join(timeout=20)


def test_streams_that_nobody_reads_give_their_places_back(server: ThreadServer) -> None:
    body = json.dumps(LONG).encode()
    head = POST.format("/generate", "application/json", len(body)).encode()
    connections = [server.open(head + body, buffer=4096) for _ in range(4)]
    assert until(lambda: server.inside == 4)
    assert until(lambda: server.inside == 0), server.inside
    assert server.status() == 200
    for connection in connections:
        connection.close()


def test_streams_that_are_abandoned_write_no_lines_to_the_log(
    hub: ModelRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    server = ThreadServer(hub, request_timeout=1)
    logging.getLogger("uvicorn.error").setLevel("WARNING")
    body = json.dumps(LONG).encode()
    connection = server.open(POST.format("/generate", "application/json", len(body)).encode() + body, buffer=4096)
    assert until(lambda: server.inside == 1)
    assert until(lambda: server.inside == 0)
    assert server.status() == 200  # the loop has finished with the stream
    http_protocol.log.error("anything else")
    logged = [record.message for record in caplog.records if record.name.startswith("uvicorn")]
    connection.close()
    server.server.should_exit = server.server.force_exit = True
    server.thread.join(timeout=20)
    assert logged == ["anything else"]


@pytest.mark.parametrize(("request_line", "status"), [
    (b"GET /runs HTTP/1.1\r\nhost: localhost\r\n", b"200"),
    (b"POST /fill HTTP/1.1\r\nhost: elsewhere.example\r\ncontent-type: application/json\r\n", b"403"),
    (b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n", b"415"),
])  # fmt: skip
def test_bodies_that_trickle_in_are_not_kept(server: ThreadServer, request_line: bytes, status: bytes) -> None:
    connection = server.open(request_line + b"content-length: 100000\r\n\r\n")
    assert status in connection.recv(1 << 16)[:20]
    deadline = time.monotonic() + 60
    with pytest.raises(OSError):  # whatever was answered, the connection ends
        while time.monotonic() < deadline:
            connection.sendall(b"x")
            time.sleep(0.05)
    assert time.monotonic() < deadline


def test_a_connection_stays_usable_after_a_429(server: ThreadServer) -> None:
    admission = server.app.state.engine.admission
    max_requests, admission._max_requests = admission._max_requests, 0
    body = json.dumps({"model": "bert", "text": "Ada [MASK]" + " " * 90_000}).encode()
    head = POST.format("/fill", "application/json", len(body)).encode()
    connection = server.open(head + body)
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 429 ")
    admission._max_requests = max_requests
    connection.sendall(head + body)
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    connection.close()


def test_idle_connections_make_room_for_a_request(server: ThreadServer) -> None:
    idle = [server.open() for _ in range(24)]
    assert server.status() == 200
    for connection in idle:
        connection.close()


def sampled_tokens(count: int) -> tuple[SampledToken, ...]:
    return tuple(SampledToken(token=1, logprob=0.0, top=()) for _ in range(count))


def test_a_client_that_is_far_behind_is_not_written_for() -> None:
    async def scene() -> None:
        ticket = RequestContext(60)
        settings = SamplingSettings.model_validate({})
        order = GenerationJob(run=None, encode_prompts=tuple, settings=settings, context=ticket, stream=True)  # type: ignore[arg-type]
        order.put_updates([GenerationUpdate(0, "a", sampled_tokens(MAX_UNREAD_TOKENS))])
        assert ticket.is_active and order.updates.qsize() == 1
        order.put_updates([GenerationUpdate(0, "b", sampled_tokens(1))])
        assert not ticket.is_active and order.updates.qsize() == 1

    asyncio.run(scene())


def test_a_deadline_covers_sending_and_what_is_cut_off_is_counted() -> None:
    async def never(message: Any) -> None:
        await asyncio.sleep(60)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def scene() -> None:
        admission = AdmissionController(2, timeout=0.05)
        gate = AdmissionMiddleware(app, admission)
        await asyncio.wait_for(gate({"type": "http", "method": "POST"}, receive, never), 5)
        assert admission.num_active == 0 and admission.num_cut_off == 0
        admission = AdmissionController(2, timeout=60)
        task = asyncio.create_task(
            AdmissionMiddleware(app, admission)({"type": "http", "method": "POST"}, receive, never)
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert admission.num_active == 0 and admission.num_cut_off == 1

    asyncio.run(scene())
