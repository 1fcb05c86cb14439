"""Accepting connections: silent ones cost no protocol, leave turns to others, and are closed after a while."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable

import pytest

from meristem.serving import acceptor
from meristem.serving.acceptor import MAX_ACCEPTS, ConnectionAcceptor


class Echo(asyncio.Protocol):
    """Sends back what it receives, and counts the protocols that were made."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Echo.made += 1
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def serve(
    scenario: Callable[[ConnectionAcceptor, Callable[[], socket.socket]], Awaitable[None]],
    *,
    max_connections: int = 1000,
    timeout: float = 60.0,
) -> None:
    """Run a scenario with an acceptor and a function that connects to it."""

    async def run() -> None:
        Echo.made = 0
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
            made = ConnectionAcceptor(
                listener, Echo, max_connections=max_connections, count_others=lambda: Echo.made, timeout=timeout
            )
            connections: list[socket.socket] = []

            def connect() -> socket.socket:
                connections.append(socket.create_connection(listener.getsockname(), timeout=10))
                return connections[-1]

            try:
                await scenario(made, connect)
            finally:
                made.close()
                for connection in connections:
                    connection.close()

    asyncio.run(run())


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.005)


def test_a_protocol_is_made_with_the_first_bytes() -> None:
    async def scenario(made: ConnectionAcceptor, connect: Callable[[], socket.socket]) -> None:
        silent, speaking = connect(), connect()
        await until(lambda: made.num_silent == 2)
        assert Echo.made == 0
        speaking.sendall(b"hello")
        assert await asyncio.to_thread(speaking.recv, 16) == b"hello"
        assert (Echo.made, made.num_silent) == (1, 1)
        silent.close()
        await until(lambda: made.num_silent == 0)
        assert Echo.made == 1

    serve(scenario)


def test_many_at_once_leave_turns_to_others() -> None:
    async def scenario(made: ConnectionAcceptor, connect: Callable[[], socket.socket]) -> None:
        for _ in range(4 * MAX_ACCEPTS):
            connect()
        counts = [0]
        while counts[-1] < 4 * MAX_ACCEPTS:
            await asyncio.sleep(0)
            counts.append(made.num_silent)
        assert max(after - before for before, after in itertools.pairwise(counts)) <= MAX_ACCEPTS

    serve(scenario)


def test_beyond_the_limit_the_oldest_silent_one_is_closed() -> None:
    async def scenario(made: ConnectionAcceptor, connect: Callable[[], socket.socket]) -> None:
        first = connect()
        await until(lambda: made.num_silent == 1)
        for _ in range(3):
            connect()
        assert await asyncio.to_thread(first.recv, 1) == b""
        assert made.num_silent == 3

    serve(scenario, max_connections=3)


def test_whoever_stays_silent_is_disconnected() -> None:
    async def scenario(made: ConnectionAcceptor, connect: Callable[[], socket.socket]) -> None:
        assert await asyncio.to_thread(connect().recv, 1) == b""
        assert made.num_silent == 0

    serve(scenario, timeout=0.2)


def test_an_error_pauses_accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "ERROR_PAUSE", 0.05)

    class Full:
        """A listener without file descriptors left, at first."""

        def __init__(self, listener: socket.socket) -> None:
            self.listener, self.calls = listener, 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.listener, name)

        def accept(self) -> tuple[socket.socket, object]:
            self.calls += 1
            if self.calls <= 2:
                raise OSError(24, "Too many open files")
            return self.listener.accept()

    async def scenario(made: ConnectionAcceptor, connect: Callable[[], socket.socket]) -> None:
        full = made._listener = Full(made._listener)  # type: ignore[assignment]
        connect()
        await until(lambda: made.num_silent == 1)
        assert full.calls <= 4  # type: ignore[attr-defined]

    serve(scenario)
