"""Words of the shell commands that messages, reports and model cards offer to be copied."""

from __future__ import annotations

import shlex
from pathlib import Path


def shell_path(path: str | Path) -> str:
    """A path as one word of a command: quoted where the shell would split or expand it, and never read as an option."""
    name = str(path)
    return shlex.quote(f"./{name}" if name.startswith("-") else name)
