"""Trackio: a local database, shown by `trackio show`, or a server (TRACKIO_SERVER_URL) or Space (TRACKIO_SPACE_ID)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meristem.training.project_tracker import InitLogFinishTracker, run_name


class TrackioTracker(InitLogFinishTracker):
    """Logs to trackio, which continues a run by its name: the name contains the id."""

    library = "trackio"

    def init_options(self, folder: Path, run_id: str) -> dict[str, Any]:
        """The run's name; no dashboard in notebooks, and no measurements of the machine."""
        return {"name": f"{run_name(folder)}-{run_id}", "embed": False, "auto_log_cpu": False, "auto_log_gpu": False}

    def close(self) -> None:
        """Write what is left, and end the tracked run; trackio would end it again when the process exits."""
        super().close()
        self._module.context_vars.current_run.set(None)
