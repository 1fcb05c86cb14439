"""Published weights as a starting point: imported once, into the cache, and found again by their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from meristem.checkpoint import lock
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, did_you_mean
from meristem.interop import elmo
from meristem.interop.folder import READ, refuse_links
from meristem.interop.hub_weights import SCHEME, hub_folder, hub_name
from meristem.interop.importing import import_folder
from meristem.store.prepare import cache


def folder_of(place: str | Path) -> Path:
    """The folder that a place names: itself, or that of a model of the hub (hub:NAME, or NAME that is no path)."""
    name = hub_name(str(place))
    if name is None:
        return Path(place)
    try:
        return hub_folder(name)
    except MeristemError as error:
        if str(place).startswith(SCHEME):
            raise
        there = did_you_mean(str(place), [one.name for one in Path().iterdir() if one.is_dir()][:1000])
        hint = there if there.startswith(",") else ""
        raise MeristemError(f"{place}: there is no such run or folder{hint}; as a model of the hub: {error}") from None


def run_for(place: str | Path) -> Path:
    """The run that a place is, or the one that its published weights become."""
    path = folder_of(place)
    if Run(path).exists() or not path.is_dir() or not ((path / "config.json").is_file() or elmo.holds(path)):
        return path
    refuse_links(path)
    place = cache() / "imported" / _digest(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with lock.hold(place.with_suffix(".lock"), wait=True):  # two runs may begin from it at once
        if not Run(place).exists():
            import_folder(path, place)
    return place


def _digest(folder: Path) -> str:
    """Of every file's name and bytes, so that a copy elsewhere is the same start and a changed one another."""
    found = hashlib.sha256()
    parts = sorted(one.parent for one in folder.glob("*/config.json"))  # a generator beside its discriminator
    files = (one for place in (folder, *parts) for one in sorted(place.iterdir()))
    for file in (one for one in files if one.suffix in READ and one.is_file()):
        with file.open("rb") as content:
            part = hashlib.file_digest(content, "sha256").hexdigest()
        found.update(f"{file.name}\0{part}\n".encode())
    return found.hexdigest()[:20]
