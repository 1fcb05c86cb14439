"""The serve command: an HTTP server for runs."""

from __future__ import annotations

from meristem.cli import options
from meristem.cli.output import print_message


def serve(
    runs: options.Runs,
    port: options.Port = 8000,
    host: options.Host = "127.0.0.1",
    key_file: options.KeyFile = None,
    threads: options.Threads = None,
    queue: options.MaxRequests = 64,
    deadline: options.RequestTimeout = 60.0,
    allow_nonfinite: options.AllowNonfinite = False,
) -> None:
    """Serve runs over HTTP: meristem's routes, OpenAI-compatible routes, health checks and Prometheus metrics.

    meristem serve runs/gpt2-mini runs/reviews --port 8000
    curl -s localhost:8000/runs

    By default only this machine can connect. Any other --host needs --key-file, and requests must send the header
    authorization: Bearer KEY. docs/serving.md describes the routes.
    """
    from meristem.config.settings import build_settings
    from meristem.serving.server import serve as run_server
    from meristem.serving.settings import ServingSettings

    values = {
        "port": port,
        "host": host,
        "key_file": key_file,
        "threads": threads,
        "queue": queue,
        "deadline": deadline,
        "allow_nonfinite": allow_nonfinite,
    }
    settings = build_settings(ServingSettings, values, "serve")
    assert isinstance(settings, ServingSettings)
    run_server(runs, settings, print_message)
