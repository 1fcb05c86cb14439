"""MLflow: a local database mlflow.db, shown by `mlflow ui`, or the server of MLFLOW_TRACKING_URI."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meristem.training.project_tracker import ProjectTracker, run_name

MAX_PARAMS = 100
"""Parameters of one request."""
MAX_PARAM_LENGTH = 500
UNREACHABLE_SERVER = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
"""Seconds instead of minutes until an unreachable server is given up."""


class MlflowTracker(ProjectTracker):
    """Logs to MLflow; the project is an experiment, the recipe's settings are parameters."""

    library = "mlflow"

    def _start(self, folder: Path, project: str, recipe: Mapping[str, Any], run_id: str | None) -> None:
        for name, value in UNREACHABLE_SERVER.items():
            os.environ.setdefault(name, value)
        self._client: Any = self._module.MlflowClient()
        if run_id is not None:
            self._client.update_run(run_id, status="RUNNING")
            self._run_id = run_id
            return
        experiment = self._client.get_experiment_by_name(project)
        experiment_id = self._client.create_experiment(project) if experiment is None else experiment.experiment_id
        self._run_id = self._client.create_run(experiment_id, run_name=run_name(folder)).info.run_id
        self._save_id(self._run_id)
        params = [self._module.entities.Param(name, str(value)[:MAX_PARAM_LENGTH]) for name, value in flatten(recipe)]
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(self._run_id, params=params[start : start + MAX_PARAMS])

    def add_scalars(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Log the values under `kind/name`."""
        milliseconds = int(time.time() * 1000)
        metrics = [
            self._module.entities.Metric(re.sub(r"[^\w\-. :/]", "_", f"{kind}/{name}"), value, milliseconds, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """End the tracked run."""
        self._client.set_terminated(self._run_id)


def flatten(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every setting of nested mappings and lists of mappings."""
    if isinstance(settings, list) and any(isinstance(entry, dict) for entry in settings):
        settings = dict(enumerate(settings))
    if not isinstance(settings, Mapping):
        yield prefix, settings
        return
    for name, value in settings.items():
        yield from flatten(value, f"{prefix}.{name}" if prefix else str(name))
