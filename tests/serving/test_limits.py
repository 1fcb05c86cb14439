"""What a request may be, who may ask, and how many at once: in this process, against a server that does little."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.testclient import TestClient

from meristem.config.errors import MeristemError
from meristem.serving.app import create_app
from meristem.serving.batch_worker import BatchWorker
from meristem.serving.errors import RequestError
from meristem.serving.job_queue import RequestWork
from meristem.serving.middleware.admission import AdmissionController, ClientDisconnected
from meristem.serving.middleware.auth import APIKeys, load_keys
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.prometheus_metrics import ServerMetrics
from meristem.serving.settings import ServingSettings

KEY = "a-key-of-some-length"
JSON = {"content-type": "application/json"}


def settings(**overrides: Any) -> ServingSettings:
    return ServingSettings.model_validate(overrides)


# ------------------------------------------------------------ bodies and headers


def chunks(size: int) -> Iterator[bytes]:
    yield b'{"text": "'
    for _ in range(size):
        yield b"a" * 1000
    yield b'"}'


BODIES: list[tuple[str, bytes, int, str]] = [
    ("deep", b"[" * 100_000, 400, "nested deeper"),
    ("deep and closed", b"[" * 100 + b"]" * 100, 400, "32 levels"),
    ("parts", b"[" + b"0," * 200_000 + b"0]", 400, "items"),
    ("not JSON", b"{", 400, "not valid JSON"),
    ("nothing", b"", 400, "not valid JSON"),
    ("a surrogate", b'{"text": "\\ud800"}', 400, "surrogate"),
    ("bytes", b'{"text": "\xff"}', 400, "utf-8"),
    ("NaN", b'{"model": "gpt2", "temperature": NaN}', 400, "NaN"),
    ("digits", b'{"n": ' + b"9" * 1000 + b"}", 400, "digits"),
    ("twice", b'{"text": "a", "text": "b"}', 400, "duplicate key"),
    ("a list", b"[]", 422, ""),
    ("large", b'{"text": "' + b"a" * (1 << 20) + b'"}', 413, "1,048,576 bytes"),
]


@pytest.mark.parametrize(("name", "body", "status", "message"), BODIES, ids=[body[0] for body in BODIES])
@pytest.mark.parametrize("route", ["/fill", "/v1/completions"])
def test_bodies_that_are_refused(
    client: TestClient, route: str, name: str, body: bytes, status: int, message: str
) -> None:
    start = time.process_time()
    answer = client.post(route, content=body, headers=JSON)
    assert answer.status_code == (400 if status == 422 and route.startswith("/v1") else status), answer.text
    assert message.lower() in answer.json()["error"]["message"].lower()
    assert time.process_time() - start < 2


def test_a_body_in_chunks_is_counted_as_it_comes(client: TestClient) -> None:
    assert client.post("/fill", content=chunks(1100), headers=JSON).status_code == 413
    assert client.post("/fill", content=chunks(10), headers=JSON).status_code == 422  # read, and without a mask


def test_other_encodings_and_types_are_not_read(client: TestClient) -> None:
    packed = gzip.compress(b'{"text": "[MASK]"}')
    assert client.post("/fill", content=packed, headers={**JSON, "content-encoding": "gzip"}).status_code == 415
    assert (
        client.post("/fill", content=b'{"text": "[MASK]"}', headers={"content-type": "text/plain"}).status_code == 415
    )
    assert client.post("/fill", content=b'{"text": "[MASK]"}').status_code == 415


def test_headers_and_addresses_have_an_end(client: TestClient) -> None:
    assert client.get("/runs", headers={f"x-{n}": "a" for n in range(100)}).status_code == 431
    assert client.get("/runs", headers={"x-long": "a" * 20_000}).status_code == 431
    assert client.get("/" + "a" * 5000).status_code == 414


def test_every_answer_has_strict_headers(client: TestClient) -> None:
    answers = [client.get("/runs"), client.get("/nowhere"), client.post("/fill", json={}), client.get("/fill"),
               client.post("/fill", content=b"[" * 9000, headers=JSON), client.get("/health/live")]  # fmt: skip
    assert [answer.status_code for answer in answers] == [200, 404, 422, 405, 400, 200]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


ESCAPES = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "%252e%252e%252f", "..%c0%af", "....//", "..;/", "%00/"]


@pytest.mark.parametrize("before", ["/", "/v1/models/", "/health/", "/static/"])
def test_no_address_leads_out(client: TestClient, before: str) -> None:
    for escape in ESCAPES:
        for depth in (1, 3, 8):
            answer = client.get(before + escape * depth + "etc/passwd")
            assert answer.status_code in (404, 400)
            assert "root:" not in answer.text


# ------------------------------------------------------------ keys


def test_only_health_is_told_without_the_key(hub: ModelRegistry, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text(f"another-key-for-others\n{KEY}\n")
    app = create_app(hub, settings(key_file=tmp_path / "keys.txt"))
    with TestClient(app, base_url="http://elsewhere.example") as client:
        paths = [*app.openapi()["paths"], "/openapi.json", "/nowhere", "/health/../metrics"]
        for path in paths:
            for authorization in ("", KEY, f"Bearer {KEY}x", "Bearer"):
                for method in ("GET", "POST") if authorization == "" else ("GET",):
                    status = client.request(method, path, headers={"authorization": authorization}).status_code
                    assert (status == 401) == (path not in ("/health/live", "/health/ready")), (method, path, status)
        app.state.engine.admission._max_requests = 0  # full: who has no key hears nothing of it
        for authorization, status in (("", 401), (f"Bearer {KEY}", 429)):
            assert (
                client.post("/fill", headers={"authorization": authorization}, json={"text": "x"}).status_code == status
            )
        error = client.get("/runs").json()["error"]
        assert error["type"] == "authentication_error" and KEY not in str(error)
        assert client.get("/runs", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        assert client.get("/runs", headers={"authorization": "bearer another-key-for-others"}).status_code == 200


def test_an_address_that_others_reach_needs_a_key(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.1.7", "::", "example.org"):
        with pytest.raises(MeristemError, match="--key-file"):
            load_keys(settings(host=host))
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert load_keys(settings(host=host)) is None
    (tmp_path / "keys.txt").write_text(KEY)
    assert load_keys(settings(host="0.0.0.0", key_file=tmp_path / "keys.txt")) is not None


@pytest.mark.parametrize(("text", "message"), [
    ("", "contains no key"), ("short", "keys.txt:1: a key needs at least 16"),
                                             (f"{KEY}\nschlüssel-der-lang-ist", "keys.txt:2")])  # fmt: skip
def test_keys_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "keys.txt").write_text(text, encoding="utf-8")
    with pytest.raises(MeristemError, match=message):
        APIKeys.from_file(tmp_path / "keys.txt")


def test_a_name_that_was_turned_to_this_machine_is_refused(client: TestClient) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "0.0.0.0"):
        assert client.get("/runs", headers={"host": host}).status_code == 403
    for host in ("localhost:8000", "127.0.0.1:1", "[::1]:8000"):
        assert client.get("/runs", headers={"host": host}).status_code == 200


# ------------------------------------------------------------ admission


def test_places_are_counted_and_given_back() -> None:
    async def scenario() -> None:
        admission = AdmissionController(2, 10)
        tickets = [admission.admit(), admission.admit()]
        with pytest.raises(RequestError) as full:
            admission.admit()
        assert full.value.status == 429 and int(full.value.headers["retry-after"]) >= 1
        admission.release(tickets.pop())
        assert admission.admit().is_active
        assert not tickets[0].disconnected.done()
        admission.stopping = True
        with pytest.raises(RequestError, match="stopping"):
            admission.admit()

    asyncio.run(scenario())


def test_whoever_stops_waiting_leaves_no_error_unheard() -> None:
    unretrieved_errors: list[Any] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unretrieved_errors.append(context["message"])
        )
        ticket = AdmissionController(2, 10).admit()
        answers = [asyncio.get_running_loop().create_future() for _ in range(3)]
        tasks = [asyncio.ensure_future(ticket.wait(answer)) for answer in answers]
        await asyncio.sleep(0)
        answers[0].set_exception(RequestError(422, "wrong"))  # heard
        answers[1].set_exception(RequestError(422, "wrong too"))  # known, and nobody asks any more
        for task in tasks[1:]:
            task.cancel()
        with pytest.raises(RequestError):
            await tasks[0]
        await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[2].cancelled()
        answers.clear()
        tasks.clear()
        gc.collect()

    asyncio.run(scenario())
    assert unretrieved_errors == []


@pytest.fixture
def blocked_work() -> Iterator[tuple[RequestWork, threading.Event, list[int]]]:
    """Work that waits until it is let go, and counts what it read together."""
    event, sizes = threading.Event(), list[int]()

    def answer(items: Any) -> Any:
        event.wait(10)
        sizes.append(len(items))
        if "culprit" in items:
            raise RuntimeError("broken on purpose")
        return [item.upper() for item in items]

    def ready(item: str) -> tuple[str, int]:
        if item == "wrong":
            raise MeristemError("wrong from the start")
        return item, len(item)

    yield RequestWork(("run", "shout"), ready, answer), event, sizes
    event.set()


def submit_together(work: RequestWork, release: threading.Event, items: list[str]) -> list[Any]:
    """What a batcher answers to the first, and then to all others at once."""

    async def scenario() -> list[Any]:
        batcher, admission = BatchWorker(ServerMetrics(), 1), AdmissionController(99, 10)
        batcher.start()
        tasks = []
        for number, item in enumerate(items):
            tasks.append(asyncio.create_task(batcher.submit(work, item, admission.admit())))
            await asyncio.sleep(0.1 if number == 0 else 0)
        await asyncio.sleep(0.1)
        release.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(batcher.stop)
        return list(results)

    return asyncio.run(scenario())


def test_what_gathers_while_a_batch_is_read_is_read_together(blocked_work: Any) -> None:
    work, release, sizes = blocked_work
    assert submit_together(work, release, list("abcde")) == list("ABCDE")
    assert sizes == [1, 4]


def test_several_threads_share_what_waits(blocked_work: Any) -> None:
    work, release, sizes = blocked_work

    async def scenario() -> list[Any]:
        batcher, admission = BatchWorker(ServerMetrics(), 2), AdmissionController(99, 10)
        submissions = [batcher.submit(work, f"text {number}", admission.admit()) for number in range(40)]
        tasks = [asyncio.create_task(submission) for submission in submissions]
        await asyncio.sleep(0.05)
        batcher.start()
        await asyncio.sleep(0.2)
        assert batcher.is_alive and batcher.num_waiting <= 10
        release.set()
        results = await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.stop)
        assert not batcher.is_alive
        return list(results)

    assert asyncio.run(scenario()) == [f"TEXT {number}" for number in range(40)]
    assert sorted(sizes)[-1] <= 20 and sum(sizes) == 40


def test_only_the_culprit_of_a_batch_fails(blocked_work: Any, caplog: pytest.LogCaptureFixture) -> None:
    work, release, _ = blocked_work
    first, a, culprit, wrong, b = submit_together(work, release, ["x", "a", "culprit", "wrong", "b"])
    assert [first, a, b] == ["X", "A", "B"]
    assert culprit.status == 500 and wrong.status == 422
    number = str(culprit).rpartition(" ")[2]
    assert any(number in record.message and record.exc_info for record in caplog.records)
    assert "broken on purpose" not in str(culprit)


def test_whoever_leaves_or_waits_too_long_is_not_worked_for(blocked_work: Any) -> None:
    work, release, sizes = blocked_work

    async def scenario() -> None:
        batcher, admission = BatchWorker(ServerMetrics(), 1), AdmissionController(99, 0.5)
        batcher.start()
        task = asyncio.create_task(batcher.submit(work, "held", AdmissionController(1, 10).admit()))
        await asyncio.sleep(0.1)
        ticket = admission.admit()
        abandoned = asyncio.create_task(batcher.submit(work, "left", ticket))
        late = asyncio.create_task(batcher.submit(work, "late", admission.admit()))
        await asyncio.sleep(0.05)
        ticket.close()
        with pytest.raises(RequestError, match=r"timed out after 0.5 s"):
            await late
        with pytest.raises(ClientDisconnected):
            await abandoned
        release.set()
        assert await task == "HELD"
        await asyncio.to_thread(batcher.stop)

    asyncio.run(scenario())
    assert sizes == [1]


@pytest.fixture
def single(hub: ModelRegistry) -> Iterator[Any]:
    """A server with one place."""
    app = create_app(hub, settings(max_requests=1))
    app.state.engine.start()
    yield app
    app.state.engine.stop()


def test_more_than_fit_are_told_to_come_back(single: Any) -> None:
    app = single

    async def scenario() -> None:
        async with AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1") as client:
            ticket = app.state.engine.admission.admit()
            async with asyncio.timeout(60):  # whoever waited for the place would wait for ever
                answers = await asyncio.gather(*(client.post("/fill", json={"text": "[MASK]"}) for _ in range(20)))
            assert {answer.status_code for answer in answers} == {429}
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
            assert (await client.get("/health/ready")).status_code == 200
            app.state.engine.admission.release(ticket)
            assert (await client.post("/fill", json={"text": "[MASK]"})).status_code == 200
            app.state.engine.admission.stopping = True
            assert (await client.post("/fill", json={"text": "[MASK]"})).status_code == 503
            assert (await client.get("/health/ready")).status_code == 503
            assert (await client.get("/health/live")).status_code == 200

    asyncio.run(scenario())


def test_a_slow_body_is_not_waited_for(hub: ModelRegistry) -> None:
    app = create_app(hub, settings(body_timeout=0.2))

    async def scenario() -> None:
        received = [{"type": "http.request", "body": b'{"text": ', "more_body": True}]

        async def receive() -> Any:
            if received:
                return received.pop()
            await asyncio.sleep(90)
            return {"type": "http.request", "body": b"", "more_body": False}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/fill", "raw_path": b"/fill", "query_string": b"",
                 "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
                 "http_version": "1.1", "scheme": "http", "root_path": ""}  # fmt: skip
        start = time.monotonic()
        await app(scope, receive, send)
        assert time.monotonic() - start < 60
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]
        assert "did not arrive" in json.loads(sent[1]["body"])["error"]["message"]

    asyncio.run(scenario())


def test_a_client_that_leaves_frees_its_place_and_its_texts(hub: ModelRegistry) -> None:
    app = create_app(hub)
    engine = app.state.engine
    engine.start()

    async def scenario() -> None:
        body = json.dumps({"model": "gpt2", "max_tokens": 2000, "min_tokens": 2000, "n": 4}).encode()
        event = asyncio.Event()
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await event.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/generate", "raw_path": b"/generate", "query_string": b"",
                 "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
                 "http_version": "1.1", "scheme": "http", "root_path": ""}  # fmt: skip
        request = asyncio.create_task(app(scope, receive, send))
        while engine.generation_worker.num_active < 4:
            await asyncio.sleep(0.01)
        assert engine.admission.num_active == 1
        event.set()
        await request
        assert engine.admission.num_active == 0
        until = time.monotonic() + 5
        while engine.generation_worker.num_active and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert engine.generation_worker.num_active == 0
        assert not engine.generation_worker._texts

    asyncio.run(scenario())
    engine.stop()
