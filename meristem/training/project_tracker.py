"""Base classes of trackers that file runs under a project: wandb, trackio and swanlab (init, log, finish), and mlflow.

A tracked run has an id, which `trackers.json` in the run's folder keeps, so that a resumed run continues it.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import TRACKER_IDS_FILE
from meristem.config.errors import MeristemError
from meristem.training.tracker import Tracker
from meristem.utils import untrusted_files

DEFAULT_PROJECT = "meristem"


class ProjectTracker(Tracker):
    """A tracker whose library files runs under a project; it starts a run, or continues that of the run's folder."""

    library: ClassVar[str]
    """The package that must be installed, and the key in trackers.json."""

    def __init__(self, folder: Path, *, last_step: int, log: Callable[[str], None]) -> None:
        if importlib.util.find_spec(self.library) is None:
            raise MeristemError(f"it is not installed: pip install {self.library}")
        self._log = log
        self._module: Any = importlib.import_module(self.library)
        self._ids_path = folder / TRACKER_IDS_FILE
        recipe = untrusted_files.read_yaml(folder / "recipe.yaml")
        project = recipe.get("train", {}).get("tracker_project", DEFAULT_PROJECT)
        with self._stdout_to_log():
            self._start(folder, project, recipe, self._saved_ids().get(self.library))

    @abstractmethod
    def _start(self, folder: Path, project: str, recipe: Mapping[str, Any], run_id: str | None) -> None:
        """Start a run in the project, or continue the one with this id."""

    def _saved_ids(self) -> dict[str, str]:
        """Library → id of the tracked run."""
        if not self._ids_path.is_file():
            return {}
        ids = untrusted_files.read_json_object(self._ids_path)
        return {name: run_id for name, run_id in ids.items() if isinstance(run_id, str)}

    def _save_id(self, run_id: str) -> None:
        ids = self._saved_ids() | {self.library: run_id}
        disk.atomic_write(self._ids_path, [untrusted_files.to_json(ids, indent=1).encode()])

    @contextmanager
    def _stdout_to_log(self) -> Iterator[None]:
        """Context in which what the library prints goes to log.txt: standard output belongs to the command."""
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                yield
        finally:
            for line in filter(None, map(str.strip, printed.getvalue().splitlines())):
                self._log(f"{self.library}: {line}")


class InitLogFinishTracker(ProjectTracker):
    """A tracker of a library with wandb's interface: `init` returns a run with `log` and `finish`."""

    def _start(self, folder: Path, project: str, recipe: Mapping[str, Any], run_id: str | None) -> None:
        if run_id is None:
            run_id = secrets.token_hex(4)
            self._save_id(run_id)
        options = self.init_options(folder, run_id)
        self._run = self._module.init(project=project, config=dict(recipe), resume="allow", **options)

    @abstractmethod
    def init_options(self, folder: Path, run_id: str) -> dict[str, Any]:
        """What this library's `init` takes besides project, config and resume: the run's id, name and folder."""

    def add_scalars(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Log the values under `kind/name`."""
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        """Send what is left, and end the tracked run."""
        with self._stdout_to_log():
            self._run.finish()


def run_name(folder: Path) -> str:
    """The name of a tracked run: that of its folder."""
    return folder.resolve().name
