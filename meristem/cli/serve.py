"""The serve command: an HTTP server for runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meristem.cli import options
from meristem.cli.output import print_message
from meristem.cli.settings_options import takes_settings

if TYPE_CHECKING:
    from meristem.serving.settings import ServingSettings


@takes_settings("settings", "serving.settings", "ServingSettings", "Server")
def serve(runs: options.Runs, *, settings: ServingSettings) -> None:
    """Serve runs over HTTP: meristem's routes, OpenAI-compatible routes, health checks and Prometheus metrics.

    meristem serve runs/gpt2-mini runs/reviews --port 8000
    curl -s localhost:8000/runs

    By default only this machine can connect. Any other --host needs --key-file, and requests must send the header
    authorization: Bearer KEY. docs/serving.md describes the routes.
    """
    from meristem.serving.server import serve as run_server

    run_server(runs, settings, print_message)
