"""The runs under a folder: found anew each time, named by where they lie, never opened by a path that a client gave."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, did_you_mean
from meristem.serving.errors import Refused
from meristem.serving.studio.header import data_of, seconds_left
from meristem.serving.studio.measures import measure_of
from meristem.serving.studio.metrics_tail import metrics_tail, stamp
from meristem.serving.studio.recipe_file import recipe_of
from meristem.serving.studio.standing import finished_of, locks, standing

DEPTH, FOLDERS, MOST = 4, 4000, 500
"""How deep runs are looked for, in how many folders, and how many are listed."""
PAGE, FACTS, CARD = "report.html", "report.json", "README.md"


@dataclass(frozen=True)
class Found:
    """A folder that is a run, or that holds the report of a corpus."""

    name: str
    path: Path
    run: bool = True


class Listing:
    """What there is to see, by name."""

    def __init__(self, folder: Path | None, runs: Mapping[str, Path] | None = None) -> None:
        """The runs under a folder, or those that are given."""
        self.folder = folder
        self._given = [Found(name, path) for name, path in (runs or {}).items()]

    def found(self) -> list[Found]:
        """Everything, in the order of names."""
        if self.folder is None:
            return self._given
        return _named(self.folder, sorted(_walk(self.folder), key=lambda one: str(one[0])))

    def named(self, name: str) -> Found:
        """One of them: names are compared with those there are, and never become a part of a path."""
        there = self.found()
        for one in there:
            if one.name == name:
                return one
        close = did_you_mean(name, [one.name for one in there])
        raise Refused(404, f"there is no run {name[:100]!r} here{close}", param="name")

    def run(self, name: str) -> Run:
        """A run by name, whose own files are its own."""
        found = self.named(name)
        if not found.run:
            raise Refused(422, f"{name[:100]!r} is the report of a corpus, and no run", param="name")
        run = Run(found.path)
        run.refuse_links()
        return run

    def summaries(self) -> list[dict[str, Any]]:
        """Each run in a line."""
        held = locks()
        return [summary(one, held) for one in self.found() if one.run]

    def reports(self) -> list[dict[str, Any]]:
        """The reports there are: of which kind, and their most important numbers."""
        return [found for one in self.found() if (found := report(one)) is not None]


def summary(found: Found, held: Any) -> dict[str, Any]:
    """A run in a line of a table."""
    run = Run(found.path)
    told = recipe_of(run)
    now, kind = standing(run, told, held), kind_of(told)
    return {
        "name": found.name,
        **kind,
        **vars(now),
        "measure": measure_of(kind["kind"], finished_of(run), metrics_tail(run.metrics_path)),
        "seconds_left": seconds_left(run, told, now),
        "data": data_of(told),
        "report": (found.path / PAGE).is_file(),
    }


def kind_of(recipe: dict[str, Any]) -> dict[str, str]:
    """What a run learns, and with what: the family, and the objectives, the task or the rewards."""
    task, rewards = _names(recipe.get("task")), _names(recipe.get("rewards"))
    if recipe.get("policy"):
        kind, learns = "rewards", rewards
    elif task:
        kind, learns = "tasks", task
    else:
        mixed = recipe.get("mix")
        parts = [one.get("objective") for one in mixed if isinstance(one, dict)] if isinstance(mixed, list) else []
        kind, learns = "objectives", " / ".join(map(_names, parts)) or _names(recipe.get("objective"))
    model = recipe.get("model")
    return {"family": str(model.get("family", "")) if isinstance(model, dict) else "", "kind": kind, "learns": learns}


def _names(part: Any) -> str:
    """The names of what a section holds."""
    entries = part if isinstance(part, list) else [part] if part else []
    return " + ".join(str(one.get("name", "?")) if isinstance(one, dict) else str(one) for one in entries)


def report(found: Found) -> dict[str, Any] | None:
    """The kind of a report, and the numbers that it begins with."""
    page = found.path / PAGE
    if not page.is_file() or page.is_symlink():
        return None
    if not found.run:
        return {"name": found.name, "kind": "corpus", "numbers": {}, "title": "", "changed": _changed(page)}
    facts = _facts(found.path / FACTS, stamp(found.path / FACTS))
    kept = {str(name): value for name, value in _report_numbers(facts).items() if isinstance(value, int | float)}
    kind = kind_of(recipe_of(Run(found.path)))["kind"]
    return {"name": found.name, "kind": kind if kind == "rewards" else "tasks",
            "numbers": dict(list(kept.items())[:6]), "title": str(facts.get("model", ""))[:200],
            "changed": _changed(page)}  # fmt: skip


def _report_numbers(facts: dict[str, Any]) -> dict[str, Any]:
    """A task's metrics, what rewards ended with, or the held-out loss of each task of a mix."""
    if isinstance(metrics := facts.get("metrics"), dict):
        return metrics
    numbers, tasks = (
        [one for one in facts[name] if isinstance(one, dict)] if isinstance(facts.get(name), list) else []
        for name in ("numbers", "tasks")
    )
    ended = {str(one["name"]): one.get("after") for one in numbers if "name" in one}
    return ended or {f"{one.get('source')}.{one.get('term')}": one.get("loss_mixed") for one in tasks}


def _changed(path: Path) -> float:
    """When a file was last written, in seconds since 1970."""
    return stamp(path)[2] / 1e9


@lru_cache(maxsize=256)
def _facts(path: Path, _stamp: tuple[int, int, int]) -> dict[str, Any]:
    bounds = bounded.Bounds(size=32 << 20, parts=1 << 21, objects=1 << 20, depth=64)
    try:
        return {} if path.is_symlink() else bounded.read_mapping(path, bounds)
    except MeristemError:
        return {}


def facts_of(found: Found) -> dict[str, Any]:
    """The report for programs."""
    return _facts(found.path / FACTS, stamp(found.path / FACTS))


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Runs and folders of reports, never through a link, never inside a run, never further than the bounds."""
    level, visited, listed = [folder], 0, 0
    for _ in range(DEPTH + 1):
        below: list[Path] = []
        for place in level:
            visited += 1
            if visited > FOLDERS or listed >= MOST:
                return
            if Run(place).exists():
                listed += 1
                yield place, True
                continue
            if (place / PAGE).is_file():
                listed += 1
                yield place, False
            below += _folders(place)
        level = below


def _folders(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [place / name for name in sorted(names) if not name.startswith(".")]


def _named(folder: Path, found: Iterable[tuple[Path, bool]]) -> list[Found]:
    """Each by its way from the folder; bytes that are no text are replaced, and names that then agree get numbers."""
    out: dict[str, Found] = {}
    for path, run in found:
        way = path.relative_to(folder).as_posix()
        name = plain = os.fsencode(folder.name if way == "." else way).decode("utf-8", "replace")
        number = 2
        while name in out:
            name, number = f"{plain} ({number})", number + 1
        out[name] = Found(name, path, run)
    return list(out.values())
