"""Shell quoting for the commands printed in messages, reports and model cards."""

from __future__ import annotations

import shlex
from pathlib import Path


def shell_path(path: str | Path) -> str:
    """A path as one argument of a shell command: quoted if necessary, and never mistaken for an option."""
    name = str(path)
    return shlex.quote(f"./{name}" if name.startswith("-") else name)
