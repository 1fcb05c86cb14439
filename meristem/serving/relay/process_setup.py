"""What both processes of a server set up: the event loop, and log lines on the terminal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import uvicorn

from meristem.utils.terminal import PrintableFormatter


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop where it is installed, as uvicorn chooses it."""
    return uvicorn.Config("", log_config=None).get_loop_factory()


def log_to_terminal() -> None:
    """Print the server's log lines to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter())
    logging.getLogger("meristem.serving").addHandler(handler)
