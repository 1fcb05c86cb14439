"""The HTTP process: connections, parsing, authentication, limits, admission and refusals; it imports no torch.

    python -m meristem.serving.relay.http_process LISTENING_FD RELAY_FD

Refusals and hostile clients take no time from the models' interpreter lock here. Stop signals come from the model
process, and so does the end of the server: when either process ends, so does the other.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, cast

import uvicorn

from meristem.serving.http_protocol import TimeoutHttpProtocol
from meristem.serving.middleware.admission import AdmissionController
from meristem.serving.middleware.auth import load_keys
from meristem.serving.middleware.early_rejection import EarlyRejection
from meristem.serving.middleware.stack import server_middleware
from meristem.serving.prometheus_metrics import RequestMetrics
from meristem.serving.relay.frames import FrameKind
from meristem.serving.relay.process_setup import event_loop_factory, log_to_terminal
from meristem.serving.relay.relay_app import RelayApp
from meristem.serving.settings import ServingSettings

SHUTDOWN_TIMEOUT = 30.0
"""Maximum seconds that running requests may take to finish after a stop signal."""


async def run_http_server(listening: socket.socket, relay_socket: socket.socket) -> None:
    """Serve HTTP until the model process says that it stops, or ends."""
    relay = RelayApp()
    await asyncio.get_running_loop().create_unix_connection(lambda: relay.connection, sock=relay_socket)
    start = await relay.started
    settings = ServingSettings.model_validate(start["settings"])
    admission = AdmissionController(settings.max_requests, settings.request_timeout)
    keys, metrics = load_keys(settings), RequestMetrics(frozenset(start["routes"]))
    app: Any = relay
    for middleware in reversed(server_middleware(settings, keys, admission, metrics)):
        app = middleware.cls(app, *middleware.args, **middleware.kwargs)
    server = uvicorn.Server(http_config(app, settings, EarlyRejection(admission, keys, metrics)))
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]  # signals come through the relay
    relay.on_stop = lambda number: server.handle_exit(number, None)
    gc.collect()
    gc.freeze()
    await server.serve(sockets=[listening])
    unfinished = [task for task in server.server_state.tasks if task.cancel()]  # after a second Ctrl-C
    await asyncio.gather(*unfinished, return_exceptions=True)
    relay.connection.send(FrameKind.STOPPED, payload=b"%d" % admission.num_cut_off)
    relay.connection.close()
    await asyncio.sleep(0)  # closes the connection


def http_config(app: Any, settings: ServingSettings, early_rejection: EarlyRejection) -> uvicorn.Config:
    """uvicorn's configuration."""
    return uvicorn.Config(
        app,
        http=cast(Any, partial(TimeoutHttpProtocol, early_rejection=early_rejection)),
        ws="none",
        lifespan="off",
        log_config=None,  # uvicorn's default would close log handlers that other libraries have set up
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(min(SHUTDOWN_TIMEOUT, settings.request_timeout) + 1),
        backlog=min(2048, settings.max_connections),
    )


def main() -> None:
    """Take over both sockets and serve."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    log_to_terminal()
    listening, relay_socket = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:])
    with suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(run_http_server(listening, relay_socket))


if __name__ == "__main__":
    main()
