"""The server as people start it: a process of its own, spoken to over sockets."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_runner import COMMAND, Meristem

HEAD = b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


class Process:
    """A server that has said where it is."""

    def __init__(self, *words: object) -> None:
        command = [*COMMAND, "serve", *map(str, words), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
        self.said: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                return
        raise AssertionError("".join(self.said))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if data.startswith(b"{") else data.decode()

    def open(self, data: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(data)
        return connection

    def gauge(self, name: str) -> float:
        return float(re.search(rf"^{name} (\S+)$", self.ask("GET", "/metrics")[1], re.M)[1])  # type: ignore[index]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        assert self.process.stderr is not None
        self.said += list(self.process.stderr)
        return code


@pytest.fixture(scope="module")
def server(runs: dict[str, Path]) -> Iterator[Process]:
    process = Process(runs["bert"], runs["gpt2"], "--max-requests", 3)
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


def until(true: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return False


def test_it_says_what_it_serves_and_answers(server: Process) -> None:
    assert "bert: generate, fill, score, embed, attention" in "".join(server.said)
    assert server.ask("GET", "/health/ready") == (200, {"status": "ready"})
    assert server.ask("POST", "/fill", {"text": "Ada [MASK]"})[0] == 200
    assert server.ask("POST", "/generate", {"model": "gpt2", "prompt": "Ada", "max_tokens": 3})[0] == 200


def answer_of(connection: socket.socket) -> bytes:
    """What is said until the connection is closed."""
    received = b""
    try:
        while data := connection.recv(1 << 16):
            received += data
    except ConnectionError:
        pass
    return received


def sent(connection: socket.socket, pieces: Iterable[bytes]) -> bool:
    """Whether all pieces were taken; a server that has heard enough closes."""
    try:
        for piece in pieces:
            connection.sendall(piece)
    except ConnectionError:
        return False
    return True


def test_one_byte_at_a_time_until_it_is_too_much(server: Process) -> None:
    connection = server.open(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    was_sent = sent(connection, (b"1\r\na\r\n" * 1000 for _ in range(3000)))
    assert not was_sent or b"a body may have at most 4,096 chunks" in answer_of(connection)
    connection = server.open(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    assert not sent(connection, (b"400\r\n" + b"a" * 1024 + b"\r\n" for _ in range(8000))) or b" 413 " in answer_of(
        connection
    )
    assert server.ask("POST", "/fill", {"text": "Ada [MASK]"})[0] == 200


@pytest.mark.parametrize("large", [2, 5])
def test_whoever_sends_too_much_hears_of_it(server: Process, large: int) -> None:
    body = b'{"text": "' + b"a" * (large << 20) + b'"}'
    for _ in range(5):
        connection = server.open(HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
        assert sent(connection, [body])
        assert b" 413 " in answer_of(connection)[:20]
    waiting = server.open(HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
    assert b" 413 " in waiting.recv(20)  # before anything is sent


def test_headers_that_never_end_are_cut_off(server: Process) -> None:
    connection = server.open(b"GET /runs HTTP/1.1\r\nhost: localhost\r\n")
    was_sent = sent(connection, (b"x-%d: %s\r\n" % (number, b"a" * 100) for number in range(2000)))
    assert not was_sent or b" 431 " in answer_of(connection)[:20]
    assert server.ask("GET", "/runs")[0] == 200


def test_slow_clients_take_no_place(server: Process) -> None:
    slow = [server.open(HEAD + b"content-length: 20\r\n\r\n{") for _ in range(40)]
    idle = [server.open() for _ in range(40)]
    assert server.ask("POST", "/fill", {"text": "Ada [MASK]"})[0] == 200
    assert server.gauge("meristem_inside") == 0
    for connection in (*slow, *idle):
        connection.close()


LONG = {"model": "gpt2", "prompt": "Ada", "max_tokens": 2000, "min_tokens": 2000}


def asking(server: Process, body: Any, **extra_fields: Any) -> socket.socket:
    content = json.dumps({**body, **extra_fields}).encode()
    head = b"POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return server.open(head % len(content) + content)


@pytest.mark.parametrize("stream", [False, True])
def test_work_stops_when_clients_leave_and_too_many_are_told_so(server: Process, stream: bool) -> None:
    connections = [asking(server, LONG, stream=stream, seed=n) for n in range(3)]
    assert until(lambda: server.gauge("meristem_writing") == 3)
    status, body = server.ask("POST", "/fill", {"text": "Ada [MASK]"})
    assert status == 429 and "retry in" in body["error"]["message"]
    http_connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(3):  # on one connection, whose bodies nobody reads
        http_connection.request("POST", "/fill", b"{" * 70_000, {"content-type": "application/json"})
        answer = http_connection.getresponse()
        assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-frame-options"] == "DENY"
        assert json.loads(answer.read())["error"]["type"] == "rate_limit_error"
    http_connection.request("GET", "/runs")
    assert http_connection.getresponse().status == 200
    http_connection.close()
    if stream:
        while b"data: " not in connections[0].recv(1 << 16):
            pass
    for connection in connections:
        connection.close()
    assert until(lambda: server.gauge("meristem_inside") == 0)
    assert until(lambda: server.gauge("meristem_writing") == 0)
    assert server.ask("POST", "/fill", {"text": "Ada [MASK]"})[0] == 200


def test_it_stops_when_asked_and_answers_what_it_has_begun(server: Process) -> None:
    body = {"model": "gpt2", "prompt": "Ada", "max_tokens": 300, "min_tokens": 300}
    connection = asking(server, body)
    assert until(lambda: server.gauge("meristem_writing") == 1)
    assert server.end() == 143
    assert b"200 OK" in answer_of(connection)[:30]
    assert "stopped; all running requests were completed" in "".join(server.said)
    with pytest.raises(ConnectionError):
        server.open()


def test_what_cannot_be_served_is_told(meristem: Meristem, runs: dict[str, Path], tmp_path: Path) -> None:
    result = meristem("serve", runs["bert"], "--host", "0.0.0.0")
    assert result.code == 1 and "--key-file" in result.err
    result = meristem("serve", tmp_path / "nothing", "--port", 0)
    assert result.code == 1 and "nothing" in result.err
    (tmp_path / "bert").symlink_to(runs["bert"])
    result = meristem("serve", runs["bert"], tmp_path / "bert", "--port", 0)
    assert result.code == 1 and "both named bert" in result.err
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        result = meristem("serve", runs["bert"], "--port", sock.getsockname()[1])
    assert result.code == 1 and "choose another" in result.err


def http_process_of(server: Process) -> psutil.Process:
    (child,) = psutil.Process(server.process.pid).children()
    return child


@pytest.fixture
def short_lived(runs: dict[str, Path]) -> Iterator[Process]:
    process = Process(runs["gpt2"])
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


def test_a_killed_model_process_is_answered_503_and_frees_the_port(short_lived: Process) -> None:
    child = http_process_of(short_lived)
    connection = asking(short_lived, LONG)
    assert until(lambda: short_lived.gauge("meristem_writing") == 1)
    short_lived.process.kill()
    assert b" 503 " in answer_of(connection)[:20]
    assert until(lambda: not child.is_running())
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", short_lived.port))


def test_a_killed_http_process_ends_the_server(short_lived: Process) -> None:
    http_process_of(short_lived).kill()
    assert short_lived.process.wait(timeout=30) == 1
    assert short_lived.process.stderr is not None
    (line,) = short_lived.process.stderr
    assert "the HTTP process ended unexpectedly" in line


def test_a_second_ctrl_c_cuts_off_what_is_running(short_lived: Process) -> None:
    connections = [asking(short_lived, LONG, n=16) for _ in range(4)]
    assert until(lambda: short_lived.gauge("meristem_inside") == 4)
    short_lived.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert short_lived.process.poll() is None
    assert short_lived.end(signal.SIGINT) == 130
    assert "cut off" in "".join(short_lived.said)
    assert all(b" 200 " not in answer_of(connection)[:20] for connection in connections)
