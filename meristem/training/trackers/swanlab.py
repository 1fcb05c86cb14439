"""SwanLab; SWANLAB_MODE=offline writes files that `swanlab sync` uploads later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meristem.training.project_tracker import InitLogFinishTracker, run_name


class SwanlabTracker(InitLogFinishTracker):
    """Logs to SwanLab; its files are in the folder swanlog/ of the run."""

    library = "swanlab"

    def init_options(self, folder: Path, run_id: str) -> dict[str, Any]:
        """The run's id and name."""
        return {"id": run_id, "name": run_name(folder), "log_dir": str(folder / "swanlog")}
