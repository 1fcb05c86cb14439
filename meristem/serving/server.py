"""The model process: loads the runs, starts the HTTP process, and computes what it relays until a stop signal."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.serving.middleware.auth import load_keys
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.training.stop_signals import TrainingStopped
from meristem.utils.optional_packages import require_module

PrintMessage = Callable[[str], None]
COLLECT = (20_000, 20, 20)
"""Thresholds of garbage collection: a long answer makes 100,000 small objects, and looking through all of them for
cycles every 700 stops every thread for tens of milliseconds."""
SWITCH_INTERVAL = 0.0001
"""Seconds after which a thread releases the GIL if others wait."""


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
    require_module("uvicorn", "serving", "serve")
    load_keys(settings)  # report problems with keys before loading anything
    from meristem.serving.app import create_routes, route_paths
    from meristem.serving.relay.model_endpoint import answer_requests, http_process
    from meristem.serving.relay.process_setup import event_loop_factory, log_to_terminal
    from meristem.serving.studio.run_list import RunListing
    from meristem.serving.studio.studio_routes import studio_router

    bound_socket = _bind_socket(settings.host, settings.port)
    with http_process(bound_socket) as relay_socket:  # it starts while the runs are loaded
        registry = ModelRegistry.open(
            paths, allow_nonfinite=settings.allow_nonfinite, precision=settings.precision, quantize=settings.quantize
        )
        for run in registry.runs.values():
            for notice in run.loaded_run.notices:
                print_message(notice)
            print_message(f"{run.name}: {', '.join(run.routes) or 'no routes'}")
        listing = RunListing(folder, {name: run.loaded_run.run.path for name, run in registry.runs.items()})
        app = create_routes(registry, settings, extra_routers=[studio_router(listing)])
        start = {"settings": settings.model_dump(mode="json"), "routes": sorted(route_paths(app))}
        log_to_terminal()
        bound_socket.listen(min(2048, settings.max_connections))  # connections wait for the HTTP process
        host, port = bound_socket.getsockname()[:2]
        bound_socket.close()
        print_message(f"serving at http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops)")
        sys.setswitchinterval(SWITCH_INTERVAL)  # the event loop thread needs the GIL many times per request
        gc.collect()
        gc.freeze()  # what is loaded stays, and need not be looked through for garbage while everybody waits
        gc.set_threshold(*COLLECT)
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            signal_number, cut_off = runner.run(answer_requests(app, relay_socket, start))
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
