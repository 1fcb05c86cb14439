"""How the verbs speak: messages on the error stream, answers on the output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem import bounded
from meristem.terminal import emit

if TYPE_CHECKING:
    from rich.console import Console

    from meristem.api import Loaded
    from meristem.options import Checkpoint


def console() -> Console:
    """Progress and messages go to the error stream, answers to the output."""
    from meristem.console import TerminalConsole

    return TerminalConsole(stderr=True)


def say(text: str) -> None:
    """A message as it stands: no colours guessed, no lines broken."""
    console().print(text, highlight=False, markup=False, soft_wrap=True)


def opened(run: Path, which: Checkpoint) -> Loaded:
    """The run, after saying what had to be passed over to open it."""
    from meristem import api

    loaded = api.load(run, which=which)
    for notice in loaded.revived.notices:
        say(notice)
    return loaded


def print_json(value: Any) -> None:
    """One value, one line."""
    emit(bounded.to_json(value))


def print_measured(found: Mapping[str, Any]) -> None:
    """A number a line, with its interval where there is one; what was strange goes to the error stream."""
    for notice in found.get("notices", ()):
        say(notice)
    intervals = found.get("intervals", {})
    for name, value in found["metrics"].items():
        sure = "  95 %: {:.6g} to {:.6g}".format(*intervals[name]) if name in intervals else ""
        number = "none" if math.isnan(value) else f"{value:.6g}"
        emit(f"{name:<24} {number:<10}{sure}".rstrip())
    for name, share in found.get("unknown", {}).items():
        emit(f"{f'{name} tokens':<24} {share:<10.6g}".rstrip())
    if found.get("signature"):
        emit(found["signature"])
