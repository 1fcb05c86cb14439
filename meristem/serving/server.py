"""The server process: uvicorn setup, socket, signals, and graceful shutdown."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from meristem.config.errors import MeristemError
from meristem.serving.middleware.auth import load_keys
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.training.stop_signals import TrainingStopped
from meristem.utils.optional_packages import require_module
from meristem.utils.terminal import PrintableFormatter

PrintMessage = Callable[[str], None]
COLLECT = (20_000, 20, 20)
"""Thresholds of garbage collection: a long answer makes 100,000 small objects, and looking through all of them for
cycles every 700 stops every thread for tens of milliseconds."""
SWITCH_INTERVAL = 0.0001
"""Seconds after which a thread releases the GIL if others wait."""
SHUTDOWN_TIMEOUT = 30.0
"""Maximum seconds that running requests may take to finish after a stop signal."""


def serve(
    paths: Sequence[Path], settings: ServingSettings, print_message: PrintMessage, *, folder: Path | None = None
) -> None:
    """Load runs and serve them until a stop signal; `print_message` prints to the terminal.

    The studio page shows these runs or, with `folder`, all runs in it, which are loaded on demand.
    """
    # a missing package is reported before anything else
    require_module("fastapi", "serving", "serve")
    require_module("httptools", "serving", "serve")
    require_module("prometheus_client", "serving", "serve")
    uvicorn = require_module("uvicorn", "serving", "serve")
    load_keys(settings)  # report problems with keys before loading anything
    from meristem.serving.app import create_app
    from meristem.serving.http_protocol import TimeoutHttpProtocol
    from meristem.serving.studio.run_list import RunListing
    from meristem.serving.studio.studio_routes import studio_router

    bound_socket = _bind_socket(settings.host, settings.port)
    registry = ModelRegistry.open(
        paths, allow_nonfinite=settings.allow_nonfinite, precision=settings.precision, quantize=settings.quantize
    )
    for run in registry.runs.values():
        for notice in run.loaded_run.notices:
            print_message(notice)
        print_message(f"{run.name}: {', '.join(run.routes) or 'no routes'}")
    listing = RunListing(folder, {name: run.loaded_run.run.path for name, run in registry.runs.items()})
    app = create_app(registry, settings, extra_routers=[studio_router(listing)])
    config = uvicorn.Config(
        app,
        http=TimeoutHttpProtocol,
        ws="none",
        log_config=None,  # uvicorn's default would close log handlers that other libraries have set up
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(min(SHUTDOWN_TIMEOUT, settings.request_timeout) + 1),
        backlog=min(2048, settings.max_connections),
    )
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter())
    logging.getLogger("meristem.serving").addHandler(handler)
    bound_socket.listen(config.backlog)
    host, port = bound_socket.getsockname()[:2]
    print_message(f"serving at http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops)")
    sys.setswitchinterval(SWITCH_INTERVAL)  # the event loop thread needs the GIL many times per request
    gc.collect()
    gc.freeze()  # what is loaded stays, and need not be looked through for garbage while everybody waits
    gc.set_threshold(*COLLECT)
    signal_number = _run_server(uvicorn.Server(config), bound_socket)
    cut_off = app.state.engine.admission.num_cut_off
    outcome = "all running requests were completed" if not cut_off else f"{cut_off} requests were cut off"
    raise TrainingStopped(signal_number, f"stopped; {outcome}")


def _bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is reported before anything is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound_socket = socket.socket(family, kind)
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_socket.bind(address)
    except OSError as error:
        raise MeristemError(f"--host {host} --port {port}: {error.strerror}; choose another, or --port 0") from None
    return bound_socket


def _run_server(server: Any, bound_socket: socket.socket) -> int:
    """Serve until a signal arrives and return its number; a second signal cancels running requests."""
    received: list[int] = []

    def handle(signal_number: int, frame: FrameType | None) -> None:
        received.append(signal_number)
        server.handle_exit(signal_number, frame)

    with _signal_handlers(handle):
        server.capture_signals = nullcontext  # uvicorn would raise the signal again and exit with its own code
        server.run(sockets=[bound_socket])
    if not received:
        raise MeristemError("the server stopped unexpectedly; see its messages above")
    return received[0]


@contextmanager
def _signal_handlers(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
