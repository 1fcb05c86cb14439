"""Whoever finds no place is answered from the bytes of a request alone, where those leave no doubt."""

from __future__ import annotations

import pytest

from meristem.serving.middleware.admission import AdmissionController
from meristem.serving.middleware.auth import APIKeys
from meristem.serving.middleware.early_rejection import EarlyRejection
from meristem.serving.prometheus_metrics import ServerMetrics

HEAD = b"POST /fill?a=1 HTTP/1.1\r\nHost: localhost\r\n"
KEY = "k" * 20
PLAIN = HEAD + b"Content-Length: 2\r\n\r\n{}"


def turnstile(places: int = 0, keys: APIKeys | None = None) -> EarlyRejection:
    return EarlyRejection(AdmissionController(places, 60.0), keys, ServerMetrics())


@pytest.mark.parametrize(
    "more", [b"", b"connection: Keep-Alive\r\n", b"x:y\r\n", b"authorization: Bearer nobody asked\r\n"]
)
def test_a_plain_request_is_answered_at_once(more: bytes) -> None:
    answer = turnstile().reject_bytes(HEAD + more + b"content-length: 2\r\n\r\n{}")
    assert answer is not None and answer.startswith(b"HTTP/1.1 429 ")
    assert answer == turnstile().reject({"method": "POST", "path": "/fill", "headers": [(b"host", b"localhost")]})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        PLAIN[:-1],
        PLAIN + b"P",
        PLAIN + PLAIN,
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"1.1", b"1.0"),
        HEAD + b"\r\n{}",
        HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        HEAD + b"content-length: +2\r\n\r\n{}",
        HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\n{}",
        HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
        HEAD + b"upgrade: websocket\r\ncontent-length: 2\r\n\r\n{}",
        HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    assert turnstile().reject_bytes(data) is None


def test_nobody_is_turned_away_while_there_is_a_place() -> None:
    assert turnstile(places=1).reject_bytes(PLAIN) is None


def test_who_may_not_ask_hears_nothing_of_how_busy_it_is() -> None:
    closed = turnstile(keys=APIKeys((KEY,)))
    assert closed.reject_bytes(PLAIN) is None
    assert (
        closed.reject_bytes(HEAD + b"authorization: Bearer %s\r\ncontent-length: 2\r\n\r\n{}" % KEY.encode())
        is not None
    )
