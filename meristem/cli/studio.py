"""The studio command: a web page with the runs of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meristem.cli import options
from meristem.cli.output import print_message
from meristem.cli.settings_options import takes_settings

if TYPE_CHECKING:
    from meristem.serving.settings import ServingSettings


@takes_settings("settings", "serving.settings", "ServingSettings", "Server", port=8642, threads=1)
def studio(folder: options.RunsFolder = Path("runs"), *, settings: ServingSettings) -> None:
    """Show the runs of a folder in a browser: live curves, comparison, a playground, attention, reports.

    meristem studio
    meristem studio runs --port 8642

    It can be started before there are any runs. By default only this machine can connect; any other --host needs
    --key-file, and the browser asks for the key. docs/studio.md shows the page.
    """
    from meristem.serving.server import serve

    serve((), settings, print_message, folder=folder)
