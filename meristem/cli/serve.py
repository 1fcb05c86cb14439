"""The serve command: an HTTP server for runs."""

from __future__ import annotations

from typing import Any

from meristem.cli import options
from meristem.cli.output import print_message
from meristem.cli.serving_options import takes_serving_settings


@takes_serving_settings()
def serve(runs: options.Runs, settings: Any) -> None:
    """Serve runs over HTTP: meristem's routes, OpenAI-compatible routes, health checks and Prometheus metrics.

    meristem serve runs/gpt2-mini runs/reviews --port 8000
    curl -s localhost:8000/runs

    By default only this machine can connect. Any other --host needs --key-file, and requests must send the header
    authorization: Bearer KEY. docs/serving.md describes the routes.
    """
    from meristem.serving.server import serve as run_server

    run_server(runs, settings, print_message)
