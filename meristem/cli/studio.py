"""The studio command: a web page with the runs of a folder."""

from __future__ import annotations

from pathlib import Path

from meristem.cli import options
from meristem.cli.output import print_message


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

    It can be started before there are any runs. By default only this machine can connect; any other --host needs
    --key-file, and the browser asks for the key. docs/studio.md shows the page.
    """
    from meristem.config.settings import build_settings
    from meristem.serving.server import serve
    from meristem.serving.settings import ServingSettings

    values = {"port": port, "host": host, "key_file": key_file, "threads": threads, "allow_nonfinite": allow_nonfinite}
    settings = build_settings(ServingSettings, values, "studio")
    assert isinstance(settings, ServingSettings)
    serve((), settings, print_message, folder=folder)
