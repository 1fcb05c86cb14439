"""The verb that serves runs."""

from __future__ import annotations

from meristem import options
from meristem.verbs.screen import say


def serve(
    runs: options.Runs,
    port: options.Port = 8000,
    host: options.Host = "127.0.0.1",
    key_file: options.KeyFile = None,
    threads: options.Threads = None,
    queue: options.Queue = 64,
    deadline: options.Deadline = 60.0,
    allow_nonfinite: options.AllowNonfinite = False,
) -> None:
    """Serve runs over HTTP: their own routes, OpenAI's, health and metrics.

    meristem serve runs/gpt2-mini runs/reviews --port 8000
    curl -s localhost:8000/runs

    Only this machine is answered; another address needs --key-file, and requests the header
    authorization: Bearer KEY. docs/serving.md tells the routes.
    """
    from meristem.serving.command import serve as run_server
    from meristem.serving.settings import ServingSettings
    from meristem.settings import build

    told = {"port": port, "host": host, "key_file": key_file, "threads": threads, "queue": queue, "deadline": deadline,
            "allow_nonfinite": allow_nonfinite}  # fmt: skip
    settings = build(ServingSettings, told, "serve")
    assert isinstance(settings, ServingSettings)
    run_server(runs, settings, say)
