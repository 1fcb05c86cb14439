"""The server as a process: it binds, says where, and stops without dropping what it has begun."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

from meristem.errors import MeristemError
from meristem.serving.hub import Hub
from meristem.serving.keys import keys_for
from meristem.serving.settings import ServingSettings
from meristem.terminal import PrintableFormatter
from meristem.training.signals import Stopped

Say = Callable[[str], None]
COLLECT = (20_000, 20, 20)
"""Thresholds of garbage collection: a long answer makes 100,000 small objects, and looking through all of them for
cycles every 700 stops every thread for tens of milliseconds."""
TURN = 0.0001
"""Seconds that a thread may keep the others of the process from running Python."""
GRACE = 30.0
"""Seconds that requests have to end in once the server is asked to stop, at the most."""


def serve(paths: Sequence[Path], settings: ServingSettings, say: Say, *, folder: Path | None = None) -> None:
    """Load runs and answer until somebody asks to stop; `say` tells the person at the terminal.

    The page shows these runs, or, where there is a folder, all that are in it: those are loaded when they are wanted.
    """
    uvicorn = _library()
    keys_for(settings)  # what is wrong with keys is said before anything is loaded
    from meristem.serving.app import create_app
    from meristem.serving.protocol import Patient
    from meristem.serving.studio.routes import studio
    from meristem.serving.studio.runs import Listing

    bound = _bound(settings.host, settings.port)
    hub = Hub.open(paths, allow_nonfinite=settings.allow_nonfinite)
    for run in hub.runs.values():
        for notice in run.revived.notices:
            say(notice)
        say(f"{run.name}: {', '.join(run.can) or 'nothing that can be asked'}")
    listing = Listing(folder, {name: run.revived.run.path for name, run in hub.runs.items()})
    app = create_app(hub, settings, more=[studio(listing)])
    config = uvicorn.Config(
        app,
        http=cast(Any, partial(Patient, turnstile=app.state.turnstile)),
        ws="none",
        log_config=None,  # uvicorn's own would close the handlers that other libraries have set up
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=settings.connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(min(GRACE, settings.deadline) + 1),
        backlog=min(2048, settings.connections),
    )
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter())
    logging.getLogger("meristem.serving").addHandler(handler)
    bound.listen(config.backlog)
    host, port = bound.getsockname()[:2]
    say(f"serving at http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops)")
    sys.setswitchinterval(TURN)  # the thread that speaks to clients asks for its turn many times a request
    gc.collect()
    gc.freeze()  # what is loaded stays, and need not be looked through for garbage while everybody waits
    gc.set_threshold(*COLLECT)
    received = _run(uvicorn.Server(config), bound)
    cut_off = app.state.engine.admission.cut_off
    answered = "what was begun has been answered" if not cut_off else f"{cut_off} requests were cut off"
    raise Stopped(received, f"stopped; {answered}")


def _library() -> Any:
    try:
        import fastapi  # noqa: F401  # named here, so that its absence is told once
        import httptools  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MeristemError(f'serving needs {error.name}: pip install "meristem[serve]"') from None
    return uvicorn


def _bound(host: str, port: int) -> socket.socket:
    """A socket at the address, so that a port that is taken is known before anything is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise MeristemError(f"--host {host} --port {port}: {error.strerror}; choose another, or --port 0") from None
    return made


def _run(server: Any, bound: socket.socket) -> int:
    """Serve until a signal comes → which one; a second one ends what still runs."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        server.handle_exit(number, frame)

    with _handled(handle):
        server.capture_signals = _nothing  # uvicorn would raise the signal again, and its own exit code with it
        server.run(sockets=[bound])
    if not received:
        raise MeristemError("the server ended by itself; its messages above say why")
    return received[0]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
