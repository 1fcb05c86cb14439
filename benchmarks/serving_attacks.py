"""Attacks on the server: clients that disconnect at every stage, malicious requests, schema-based fuzzing."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

from meristem.serving.middleware.limits import OVERSIZE_READ_FACTOR

OPENAI = {"completions": "generate", "chat/completions": "chat", "embeddings": "embed"}
"""The capability that a run needs for each of OpenAI's routes."""
LONGEST = OVERSIZE_READ_FACTOR << 20
LINES = "host: 127.0.0.1\r\ncontent-type: application/json\r\n"


def send_request(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """(status, body) of one request on a new connection; status 0 if it was closed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body or None, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (ConnectionError, http.client.HTTPException, TimeoutError):
        return 0, b""
    finally:
        connection.close()


def gauge(port: int, name: str) -> float:
    """The value of a metric of /metrics."""
    match = re.search(rf"^{re.escape(name)} (\S+)$", send_request(port, "GET", "/metrics")[1].decode(), re.M)
    return float(match[1]) if match else 0.0


def request(route: str, body: Any) -> bytes:
    """A complete HTTP request as bytes."""
    content = json.dumps(body).encode()
    return f"POST {route} HTTP/1.1\r\n{LINES}content-length: {len(content)}\r\n\r\n".encode() + content


def disconnects(port: int, number: int) -> dict[str, float]:
    """Clients that disconnect in the headers, in the body, while waiting, and inside a stream."""
    draw = random.Random(0)
    long = {"model": "gpt2", "prompt": "The", "max_tokens": 2000, "min_tokens": 2000}
    kinds = [
        request("/generate", long),
        request("/generate", {**long, "stream": True}),
        request("/classify", {"text": "What a film!"}),
        request("/fill", {"text": "The [MASK] is red."}),
    ]
    for index in range(number):
        request_bytes = kinds[index % len(kinds)]
        with (
            suppress(ConnectionError, TimeoutError),
            socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
        ):
            stage = index // len(kinds) % 4
            if stage < 2:
                connection.sendall(request_bytes[: draw.randrange(1, len(request_bytes))])
            else:
                connection.sendall(request_bytes)
                if stage == 3:
                    connection.settimeout(draw.random() * 0.2 + 0.01)
                    connection.recv(1024)
                else:
                    time.sleep(draw.random() * 0.02)
    start = time.monotonic()
    while gauge(port, "meristem_inside") + gauge(port, "meristem_writing") > 0 and time.monotonic() < start + 30:
        time.sleep(0.02)
    emptied = time.monotonic() - start
    tokens_before = gauge(port, 'meristem_tokens_total{kind="written"}')
    time.sleep(1)
    return {
        "inside": gauge(port, "meristem_inside"),
        "writing": gauge(port, "meristem_writing"),
        "seconds until empty": emptied,
        "tokens written after": gauge(port, 'meristem_tokens_total{kind="written"}') - tokens_before,
    }


def bombs(port: int) -> dict[str, int]:
    """Malicious request → status; 0 if the connection was closed."""
    statuses = {
        "JSON of depth 100,000": send_request(port, "POST", "/fill", b"[" * 100_000)[0],
        "n = 10⁹": send_request(port, "POST", "/generate", b'{"model": "gpt2", "n": 1000000000}')[0],
        "lone surrogates": send_request(port, "POST", "/fill", b'{"text": "\\ud800[MASK]"}')[0],
        "NUL": send_request(port, "POST", "/fill", b'{"text": "\\u0000[MASK]"}')[0],
        "a gzip body": send_request(port, "POST", "/fill", gzip.compress(b"[" * 10**7), **{"content-encoding": "gzip"})[
            0
        ],
        "3 MB of one-byte chunks": _chunks(port),
    }
    slow = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(200)]
    for slow_connection in slow:
        slow_connection.sendall(f"POST /fill HTTP/1.1\r\n{LINES}content-length: 100\r\n\r\n{{".encode())
    time.sleep(12)
    statuses["200 slow clients"] = Counter(_status(connection) for connection in slow).most_common(1)[0][0]
    for slow_connection in slow:
        slow_connection.close()
    return statuses


def _chunks(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"POST /fill HTTP/1.1\r\n{LINES}transfer-encoding: chunked\r\n\r\n".encode())
        with suppress(ConnectionError):
            for _ in range(3000):
                connection.sendall(b"1\r\na\r\n" * 1000)
        return _status(connection)


def _status(connection: socket.socket) -> int:
    try:
        status_line = connection.recv(4096)
    except (ConnectionError, TimeoutError):
        return 0
    return int(status_line[9:12]) if status_line else 0


def pictures() -> Iterator[str]:
    """An endless stream of base64 images of various sizes."""
    from PIL import Image

    draw = random.Random(0)
    while True:
        file, mode = BytesIO(), draw.choice(("RGB", "RGBA", "L", "1", "P"))
        Image.effect_noise((draw.randrange(1, 200), draw.randrange(1, 200)), 50).convert(mode).save(file, "PNG")
        yield base64.b64encode(file.getvalue()).decode()


def schemas(port: int, examples: int, saved_path: Path) -> dict[str, dict[str, int]]:
    """Route → statuses of valid and invalid requests generated from its schema; 5xx other than 503 are printed.

    Routes that are already in the file are skipped, so that the whole can take several days.
    Every second valid example names a run with the needed capability and has a real image: made-up ones are rejected
    before any work.
    """
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from hypothesis.strategies import just
    from schemathesis.core import NOT_SET

    finished_operations: dict[str, dict[str, int]] = (
        json.loads(saved_path.read_text("utf-8")) if saved_path.is_file() else {}
    )
    statuses: Counter[str] = Counter()
    description = json.loads(send_request(port, "GET", "/openapi.json")[1])
    served_runs = json.loads(send_request(port, "GET", "/runs")[1])["runs"]
    second, image_cycle = cycle((False, True)), pictures()
    thousand = settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
                        suppress_health_check=list(HealthCheck))  # fmt: skip

    def ask(case: Any, fits: bool) -> None:
        request_body: Any = case.body
        if fits and isinstance(request_body, dict) and next(second):
            request_body = {
                **request_body,
                "model": next(names),
                **({"image": next(image_cycle)} if "image" in request_body else {}),
            }
        body = b"" if isinstance(request_body, type(NOT_SET)) else json.dumps(request_body, default=str).encode()
        status, answer = send_request(port, case.method, case.formatted_path, body)
        statuses[str(status) if status or len(body) <= LONGEST else f"closed, sending over {LONGEST:,} bytes"] += 1
        if status >= 500 and status != 503:
            print(f"{case.method} {case.formatted_path} {body[:500]!r}: {answer[:500]!r}", flush=True)

    for operation_result in schemathesis.openapi.from_dict(description).get_all_operations():
        operation = operation_result.ok()
        if operation.label in finished_operations:
            continue
        statuses.clear()
        verb = operation.path.removeprefix("/v1/").strip("/")
        capable_names = [
            served_run["name"] for served_run in served_runs if OPENAI.get(verb, verb) in served_run["can"]
        ]
        names = cycle(capable_names or [served_run["name"] for served_run in served_runs])
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            cases, fits = operation.as_strategy(generation_mode=mode), mode is schemathesis.GenerationMode.POSITIVE
            with suppress(Unsatisfiable):  # a route without input has no invalid requests
                thousand(given(case=cases, fits=just(fits))(ask))()
        print(operation.label, dict(statuses), flush=True)
        finished_operations[operation.label] = dict(sorted(statuses.items()))
        saved_path.write_text(json.dumps(finished_operations, indent=1) + "\n", encoding="utf-8")
    return finished_operations
