"""Published weights as the initial weights of a run: imported once into the cache, keyed by their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from meristem.checkpoint import file_lock
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, did_you_mean
from meristem.dataset.prepare import cache_dir
from meristem.interop import elmo_files
from meristem.interop.hub_weights import SCHEME, hub_folder, parse_hub_name
from meristem.interop.import_weights import import_folder
from meristem.interop.weights_folder import READ_SUFFIXES, refuse_links


def resolve_folder(location: str | Path) -> Path:
    """The folder of a location: a path, or a model of the Hugging Face hub (hub:NAME, or a NAME that is not a path)."""
    name = parse_hub_name(str(location))
    if name is None:
        return Path(location)
    try:
        return hub_folder(name)
    except MeristemError as error:
        if str(location).startswith(SCHEME):
            raise
        suggestion = did_you_mean(str(location), [entry.name for entry in Path().iterdir() if entry.is_dir()][:1000])
        hint = suggestion if suggestion.startswith(",") else ""
        raise MeristemError(f"{location}: no such run or folder{hint}; as a model of the hub: {error}") from None


def resolve_run(location: str | Path) -> Path:
    """The run at a location, or the run imported from its published weights."""
    path = resolve_folder(location)
    if (
        RunFolder(path).exists()
        or not path.is_dir()
        or not ((path / "config.json").is_file() or elmo_files.is_elmo_folder(path))
    ):
        return path
    refuse_links(path)
    location = cache_dir() / "imported" / _folder_digest(path)
    location.parent.mkdir(parents=True, exist_ok=True)
    with file_lock.hold_lock(location.with_suffix(".lock"), wait=True):  # two runs may be initialised from it at once
        if not RunFolder(location).exists():
            import_folder(path, location)
    return location


def _folder_digest(folder: Path) -> str:
    """Hash of every file's name and bytes: a copy elsewhere is the same import, a changed file a new one."""
    hasher = hashlib.sha256()
    subfolders = sorted(path.parent for path in folder.glob("*/config.json"))  # a generator beside its discriminator
    files = (path for subfolder in (folder, *subfolders) for path in sorted(subfolder.iterdir()))
    for file in (path for path in files if path.suffix in READ_SUFFIXES and path.is_file()):
        with file.open("rb") as content:
            file_digest = hashlib.file_digest(content, "sha256").hexdigest()
        hasher.update(f"{file.name}\0{file_digest}\n".encode())
    return hasher.hexdigest()[:20]
