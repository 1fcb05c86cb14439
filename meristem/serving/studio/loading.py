"""Runs that are loaded when somebody wants to try them, and put away when others are wanted more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from meristem.checkpoint import layout
from meristem.checkpoint.run import Run
from meristem.serving.hub import Hub, Served, revive_to_serve

KEPT = 4
"""Runs that are kept at once, besides those the server was started with."""
Pointers = tuple[int | None, int | None]


class Shelf:
    """The runs of a hub that come and go."""

    def __init__(
        self, hub: Hub, run: Callable[[str], Run], *, kept: int = KEPT, allow_nonfinite: bool = False
    ) -> None:
        """`run` finds a run by its name."""
        self._hub, self._run, self._kept, self._allow_nonfinite = hub, run, kept, allow_nonfinite
        self._fixed = frozenset(hub.runs)
        self._taken: dict[str, Pointers] = {}
        self._one = asyncio.Lock()

    async def open(self, name: str) -> Served:
        """A run that can be asked, with the weights it has now; the one that was longest unused leaves."""
        async with self._one:
            run = await asyncio.to_thread(self._run, name)
            now = _pointers(run.path)
            if name in self._fixed or (name in self._hub.runs and self._taken.get(name) == now):
                if name in self._taken:
                    self._taken[name] = self._taken.pop(name)  # used last
                return self._hub.runs[name]
            revived = await asyncio.to_thread(revive_to_serve, run.path, allow_nonfinite=self._allow_nonfinite)
            self._taken.pop(name, None)
            self._hub.runs[name] = Served(name, revived)
            self._taken[name] = now
            for old in list(self._taken)[: -self._kept]:
                del self._taken[old]
                del self._hub.runs[old]
            return self._hub.runs[name]


def _pointers(path: Path) -> Pointers:
    """Which checkpoints a run points at: they move when it has learned more."""
    checkpoints = Run(path).checkpoints
    return layout.pointed(checkpoints, "latest"), layout.pointed(checkpoints, "best")
