"""The verb that shows runs in a browser."""

from __future__ import annotations

from pathlib import Path

from meristem import options
from meristem.verbs.screen import say


def studio(
    folder: options.RunsFolder = Path("runs"),
    port: options.Port = 8642,
    host: options.Host = "127.0.0.1",
    key_file: options.KeyFile = None,
    threads: options.Threads = 1,
    allow_nonfinite: options.AllowNonfinite = False,
) -> None:
    """Show the runs of a folder in a browser: live curves, comparison, a playground, attention, reports.

    meristem studio
    meristem studio runs --port 8642

    It may be started before there is any run. Only this machine is answered; another address needs --key-file,
    and the browser asks for the key. docs/studio.md shows the page.
    """
    from meristem.serving.command import serve
    from meristem.serving.settings import ServingSettings
    from meristem.settings import build

    told = {"port": port, "host": host, "key_file": key_file, "threads": threads, "allow_nonfinite": allow_nonfinite}
    settings = build(ServingSettings, told, "studio")
    assert isinstance(settings, ServingSettings)
    serve((), settings, say, folder=folder)
