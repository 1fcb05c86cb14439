"""Published weights as a starting point: a folder is imported once, into the cache, and found again by its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from meristem.checkpoint import lock
from meristem.checkpoint.run import Run
from meristem.interop import elmo
from meristem.interop.folder import READ, refuse_links
from meristem.interop.importing import import_folder
from meristem.store.prepare import cache


def run_for(path: Path) -> Path:
    """The run that a place is, or the one that its published weights become."""
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
    places = [
        folder,
        *sorted(one.parent for one in folder.glob("*/config.json")),
    ]  # a generator beside its discriminator
    for file in (one for place in places for one in sorted(place.iterdir()) if one.suffix in READ and one.is_file()):
        with file.open("rb") as content:
            part = hashlib.file_digest(content, "sha256").hexdigest()
        found.update(f"{file.name}\0{part}\n".encode())
    return found.hexdigest()[:20]
