"""The list of runs and reports under a folder, scanned on each request; clients select by name, never by path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, did_you_mean
from meristem.serving.errors import RequestError
from meristem.serving.studio.metrics_tail import cached_by_file, file_stamp, metrics_tail
from meristem.serving.studio.recipe_file import read_run_recipe
from meristem.serving.studio.run_header import seconds_left, training_data_name
from meristem.serving.studio.run_measures import run_measure
from meristem.serving.studio.run_status import finished_record, read_file_locks, run_status
from meristem.utils import untrusted_files

MAX_DEPTH, MAX_FOLDERS, MAX_RUNS = 4, 4000, 500
"""Depth of the search, folders that are searched, and runs that are listed, at most."""
REPORT_PAGE, REPORT_JSON, MODEL_CARD = "report.html", "report.json", "README.md"


@dataclass(frozen=True)
class ListedFolder:
    """A run, or a folder with the report of a corpus or a comparison."""

    name: str
    path: Path
    is_run: bool = True


class RunListing:
    """The listed folders by name."""

    def __init__(self, folder: Path | None, runs: Mapping[str, Path] | None = None) -> None:
        """List the runs under `folder`, or the fixed `runs`."""
        self.folder = folder
        self._fixed_runs = [ListedFolder(name, path) for name, path in (runs or {}).items()]

    def folders(self) -> list[ListedFolder]:
        """All listed folders, sorted by name."""
        if self.folder is None:
            return self._fixed_runs
        return _name_folders(self.folder, sorted(_walk_folders(self.folder), key=lambda item: str(item[0])))

    def get(self, name: str) -> ListedFolder:
        """A folder by name; the name is compared with the list, and never becomes part of a path."""
        folders = self.folders()
        for folder in folders:
            if folder.name == name:
                return folder
        suggestion = did_you_mean(name, [folder.name for folder in folders])
        raise RequestError(404, f"there is no run {name[:100]!r} here{suggestion}", param="name")

    def open_run(self, name: str) -> RunFolder:
        """A run by name; refuses one whose files are links."""
        folder = self.get(name)
        if not folder.is_run:
            raise RequestError(422, f"{name[:100]!r} is a report, not a run", param="name")
        run = RunFolder(folder.path)
        run.refuse_links()
        return run

    def summaries(self) -> list[dict[str, Any]]:
        """A summary of each run, for the table of runs."""
        file_locks = read_file_locks()
        return [run_summary(folder, file_locks) for folder in self.folders() if folder.is_run]

    def reports(self) -> list[dict[str, Any]]:
        """The reports with their kind and main metrics."""
        return [summary for folder in self.folders() if (summary := report_summary(folder)) is not None]


def run_summary(folder: ListedFolder, file_locks: Any) -> dict[str, Any]:
    """A run as a row of the table of runs."""
    run = RunFolder(folder.path)
    recipe = read_run_recipe(run)
    status, kind = run_status(run, recipe, file_locks), run_kind(recipe)
    return {
        "name": folder.name,
        **kind,
        **vars(status),
        "measure": run_measure(kind["kind"], finished_record(run), metrics_tail(run.metrics_path)),
        "seconds_left": seconds_left(run, recipe, status),
        "data": training_data_name(recipe),
        "report": (folder.path / REPORT_PAGE).is_file(),
    }


def run_kind(recipe: dict[str, Any]) -> dict[str, str]:
    """The model family, the kind of training, and the names of its objectives, task or rewards."""
    task, rewards = _join_names(recipe.get("task")), _join_names(recipe.get("rewards"))
    if recipe.get("policy"):
        kind, learns = "rewards", rewards
    elif task:
        kind, learns = "tasks", task
    else:
        entries = _list_of_objects(recipe, "mix") + _list_of_objects(recipe, "phases")
        objectives = [entry.get("objective") for entry in entries]
        kind, learns = "objectives", " / ".join(map(_join_names, objectives)) or _join_names(recipe.get("objective"))
    model = recipe.get("model")
    return {"family": str(model.get("family", "")) if isinstance(model, dict) else "", "kind": kind, "learns": learns}


def _join_names(section: Any) -> str:
    """The names in a section of a recipe, joined."""
    entries = section if isinstance(section, list) else [section] if section else []
    return " + ".join(str(entry.get("name", "?")) if isinstance(entry, dict) else str(entry) for entry in entries)


def report_summary(folder: ListedFolder) -> dict[str, Any] | None:
    """Kind, title and first metrics of a report; None if there is none."""
    page = folder.path / REPORT_PAGE
    if not page.is_file() or page.is_symlink():
        return None
    report_data = read_report(folder)
    if not folder.is_run:
        is_comparison = isinstance(report_data.get("measures"), list)
        title = str(report_data.get("summary", ""))[:300] if is_comparison else ""
        kind = "comparisons" if is_comparison else "corpus"
        return {"name": folder.name, "kind": kind, "numbers": {}, "title": title, "changed": _modified_time(page)}
    metrics = {
        str(name): value for name, value in _report_metrics(report_data).items() if isinstance(value, int | float)
    }
    kind = run_kind(read_run_recipe(RunFolder(folder.path)))["kind"]
    return {"name": folder.name, "kind": kind if kind == "rewards" else "tasks",
            "numbers": dict(list(metrics.items())[:6]), "title": str(report_data.get("model", ""))[:200],
            "changed": _modified_time(page)}  # fmt: skip


def _report_metrics(report_data: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a task, the final values of rewards, or the held-out loss of each source of a mix."""
    if isinstance(metrics := report_data.get("metrics"), dict):
        return metrics
    final_values = {
        str(entry["name"]): entry.get("after") for entry in _list_of_objects(report_data, "numbers") if "name" in entry
    }
    return final_values or {
        f"{entry.get('source')}.{entry.get('term')}": entry.get("loss_mixed")
        for entry in _list_of_objects(report_data, "tasks")
    }


def _list_of_objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in a list of a recipe or report; none if it is no list."""
    entries = data.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _modified_time(path: Path) -> float:
    """Modification time of a file in seconds since 1970."""
    return file_stamp(path)[2] / 1e9


@cached_by_file
def _read_report(path: Path) -> dict[str, Any]:
    limits = untrusted_files.ParseLimits(max_bytes=32 << 20, max_items=1 << 21, max_objects=1 << 20, max_depth=64)
    try:
        return {} if path.is_symlink() else untrusted_files.read_json_object(path, limits)
    except MeristemError:
        return {}


def read_report(folder: ListedFolder) -> dict[str, Any]:
    """The content of a run's report.json; empty if there is none."""
    return _read_report(folder.path / REPORT_JSON)


def _walk_folders(folder: Path) -> Iterator[tuple[Path, bool]]:
    """(path, is a run) of runs and report folders; does not follow links, enter runs, or exceed the limits."""
    level, num_visited, num_listed = [folder], 0, 0
    for _ in range(MAX_DEPTH + 1):
        next_level: list[Path] = []
        for path in level:
            num_visited += 1
            if num_visited > MAX_FOLDERS or num_listed >= MAX_RUNS:
                return
            if RunFolder(path).exists():
                num_listed += 1
                yield path, True
                continue
            if (path / REPORT_PAGE).is_file():
                num_listed += 1
                yield path, False
            next_level += _subfolders(path)
        level = next_level


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _name_folders(folder: Path, paths: Iterable[tuple[Path, bool]]) -> list[ListedFolder]:
    """Folders named by their relative path; undecodable bytes are replaced, and equal names are numbered."""
    folders: dict[str, ListedFolder] = {}
    for path, is_run in paths:
        relative = path.relative_to(folder).as_posix()
        name = base_name = os.fsencode(folder.name if relative == "." else relative).decode("utf-8", "replace")
        number = 2
        while name in folders:
            name, number = f"{base_name} ({number})", number + 1
        folders[name] = ListedFolder(name, path, is_run)
    return list(folders.values())
