"""An LRU cache of runs loaded on demand for the studio's playground."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from meristem.checkpoint import folder_layout
from meristem.checkpoint.load_run import LoadedRun
from meristem.checkpoint.run_folder import RunFolder
from meristem.serving.model_registry import ModelRegistry, ServedRun

MAX_LOADED = 4
"""Maximum number of cached runs, besides those the server was started with."""
CheckpointPointers = tuple[int | None, int | None]


class ModelCache:
    """Loads runs into a registry on demand and evicts the least recently used."""

    def __init__(
        self,
        registry: ModelRegistry,
        find_run: Callable[[str], RunFolder],
        *,
        load: Callable[[Path], LoadedRun],
        max_loaded: int = MAX_LOADED,
    ) -> None:
        """`find_run` returns the folder of a run by name, and `load` loads it."""
        self._registry, self._find_run, self._load, self._max_loaded = registry, find_run, load, max_loaded
        self._fixed = frozenset(registry.runs)
        self._pointers_by_name: dict[str, CheckpointPointers] = {}
        self._lock = asyncio.Lock()

    async def open(self, name: str) -> ServedRun:
        """The loaded run with its newest weights; the least recently used one is evicted."""
        async with self._lock:
            run = await asyncio.to_thread(self._find_run, name)
            pointers = _pointers(run.path)
            if name in self._fixed or (name in self._registry.runs and self._pointers_by_name.get(name) == pointers):
                if name in self._pointers_by_name:
                    self._pointers_by_name[name] = self._pointers_by_name.pop(name)  # most recently used
                return self._registry.runs[name]
            loaded_run = await asyncio.to_thread(self._load, run.path)
            self._pointers_by_name.pop(name, None)
            self._registry.runs[name] = ServedRun(name, loaded_run)
            self._pointers_by_name[name] = pointers
            for oldest in list(self._pointers_by_name)[: -self._max_loaded]:
                del self._pointers_by_name[oldest]
                del self._registry.runs[oldest]
            return self._registry.runs[name]


def _pointers(path: Path) -> CheckpointPointers:
    """The steps of the latest and best checkpoints; they change when the run trains on."""
    checkpoints = RunFolder(path).checkpoints
    return folder_layout.read_pointer(checkpoints, "latest"), folder_layout.read_pointer(checkpoints, "best")
