"""Accepting connections: an HTTP protocol is made for a connection only once its client has sent something.

Making one takes 0.1 ms, and the event loop accepts everything that waits in one turn: clients that open hundreds of
connections at once and send nothing would stop every request for tens of milliseconds, when they come and when they go.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import uvicorn

from meristem.serving.http_protocol import HEADER_TIMEOUT

MAX_ACCEPTS = 16
"""Connections accepted in one turn of the event loop."""
ERROR_PAUSE = 0.2
"""Seconds without accepting after an error, such as too many open files."""


class ConnectionAcceptor:
    """Accepts connections from a listening socket; those that have sent nothing yet are silent.

    Of more than `max_connections`, silent ones and others together, the oldest silent one is closed.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        max_connections: int,
        count_others: Callable[[], int],
        timeout: float = HEADER_TIMEOUT,
    ) -> None:
        """`count_others` is the number of connections that have a protocol."""
        self._loop = asyncio.get_running_loop()
        self._listener, self._make_protocol, self._timeout = listener, make_protocol, timeout
        self._max_connections, self._count_others = max_connections, count_others
        self._silent: dict[socket.socket, float] = {}
        """Silent connections and when they were accepted, oldest first."""
        self._starting: set[asyncio.Task[Any]] = set()
        listener.setblocking(False)
        self._resume()
        self._sweeper = self._loop.call_later(1.0, self._close_overdue)

    @property
    def num_silent(self) -> int:
        """Number of connections without a protocol."""
        return len(self._silent)

    def close(self) -> None:
        """Stop accepting, and close the silent connections."""
        self._sweeper.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
        while self._silent:
            self._close_oldest()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for: the interface of asyncio's servers, which uvicorn closes."""

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        """Accept some of the connections that wait; the others have their turn after all other events."""
        for _ in range(MAX_ACCEPTS):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # too many open files: the listener would stay readable, and the loop would spin
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(ERROR_PAUSE, self._resume)
                return
            connection.setblocking(False)
            if self._silent and len(self._silent) + self._count_others() >= self._max_connections:
                self._close_oldest()
            self._silent[connection] = self._loop.time()
            self._loop.add_reader(connection.fileno(), self._start, connection)

    def _start(self, connection: socket.socket) -> None:
        """The first bytes of a connection have arrived, or its end."""
        try:
            if connection.recv(1, socket.MSG_PEEK):
                self._forget(connection)
                start = self._loop.connect_accepted_socket(cast(Any, self._make_protocol), connection)
                task = self._loop.create_task(start)
                self._starting.add(task)
                task.add_done_callback(self._started)
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass  # reset by the client
        self._forget(connection)
        connection.close()

    def _started(self, task: asyncio.Task[Any]) -> None:
        self._starting.discard(task)
        if not task.cancelled():
            task.exception()  # a client that has left meanwhile: asyncio would log it

    def _forget(self, connection: socket.socket) -> None:
        del self._silent[connection]
        self._loop.remove_reader(connection.fileno())

    def _close_oldest(self) -> None:
        connection = next(iter(self._silent))
        self._forget(connection)
        connection.close()

    def _close_overdue(self) -> None:
        """Once a second: close connections that have been silent for too long."""
        overdue = self._loop.time() - self._timeout
        while self._silent and next(iter(self._silent.values())) < overdue:
            self._close_oldest()
        self._sweeper = self._loop.call_later(1.0, self._close_overdue)


class Server(uvicorn.Server):
    """Uvicorn's server with `ConnectionAcceptor` for its sockets."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections."""
        await super().startup(sockets=[])
        config, connections = self.config, self.server_state.connections

        def make_protocol() -> asyncio.Protocol:
            return cast(Any, config.http_protocol_class)(  # type: ignore[no-any-return]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        limit = config.limit_concurrency or 1 << 20
        for listener in sockets or []:
            acceptor = ConnectionAcceptor(
                listener,
                make_protocol,
                max_connections=limit - max(2, limit // 16),
                count_others=lambda: len(connections),
            )
            self.servers.append(cast(Any, acceptor))
