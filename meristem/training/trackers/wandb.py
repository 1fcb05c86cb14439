"""Weights & Biases; WANDB_MODE=offline writes files that `wandb sync` uploads later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meristem.training.project_tracker import InitLogFinishTracker, run_name


class WandbTracker(InitLogFinishTracker):
    """Logs to Weights & Biases; its files are in the folder wandb/ of the run."""

    library = "wandb"

    def init_options(self, folder: Path, run_id: str) -> dict[str, Any]:
        """The run's id and name; its terminal output is not copied, and another run of this process may be open."""
        settings = self._module.Settings(console="off", quiet=True)
        return {
            "id": run_id,
            "name": run_name(folder),
            "dir": str(folder),
            "settings": settings,
            "reinit": "create_new",
        }
