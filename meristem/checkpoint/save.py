"""Saving: written beside, flushed, read back, and only then given its name; an old one goes last."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from meristem.checkpoint import disk, layout, lock, manifest, tensors
from meristem.checkpoint.load import content_problems, verify
from meristem.checkpoint.manifest import Manifest
from meristem.checkpoint.snapshot import Snapshot
from meristem.errors import MeristemError
from meristem.system_errors import remedy

log = logging.getLogger(__name__)


def save(checkpoints: Path, snapshot: Snapshot, *, keep: int = 3, best: bool = False) -> Path:
    """Save a snapshot, move `latest` (and `best`) to it, and keep the newest `keep` and the best."""
    if keep < 1 or snapshot.step < 0:
        raise MeristemError(f"a save needs keep ≥ 1 and step ≥ 0, got keep={keep} and step={snapshot.step}")
    name = layout.folder_name(snapshot.step)
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
        with lock.hold(checkpoints / layout.LOCK, wait=True):
            layout.tidy(checkpoints)
            _put(checkpoints, snapshot)
            if best:  # before `latest`: a run killed between the two resumes at this step, and never judges it again
                layout.point(checkpoints, "best", snapshot.step)
            layout.point(checkpoints, "latest", snapshot.step)
            _retire(checkpoints, snapshot.step, keep)
    except OSError as error:
        raise MeristemError(_told(checkpoints / name, error)) from error
    return checkpoints / name


def _put(checkpoints: Path, snapshot: Snapshot) -> None:
    """The snapshot in its folder, whole or not at all."""
    name = layout.folder_name(snapshot.step)
    beside, final, aside = (checkpoints / f"{prefix}{name}" for prefix in (layout.WRITING, "", layout.REPLACED))
    try:
        disk.make_folder(beside)
        _write(beside, snapshot)
        if final.exists():
            if _same(beside, final):
                return  # nothing to replace; what lies beside is tidied away with the old ones
            disk.rename(final, aside)
        disk.rename(beside, final)
        disk.sync_folder(checkpoints)
    except BaseException:
        with suppress(OSError):  # what cannot be tidied now is tidied by the next save or load
            layout.tidy(checkpoints)
        raise


def _write(folder: Path, snapshot: Snapshot) -> None:
    """Every file of a checkpoint, each checked against what was in memory; the manifest last."""
    tied = tensors.aliases(snapshot.model)
    files = {name: disk.store(folder / name, chunks) for name, chunks in _contents(snapshot, tied)}
    content = Manifest(step=snapshot.step, files=files, aliases=tied)
    files[manifest.MANIFEST] = disk.store(folder / manifest.MANIFEST, [content.text()])
    disk.sync_folder(folder)
    for name, written in files.items():
        if disk.read_back(folder / name) != written:
            raise OSError(errno.EIO, "the disk does not give back what was written", str(folder / name))
    if problems := content_problems(folder, content):
        raise MeristemError(f"{folder}: what was saved could not be loaded again: {'; '.join(problems)}")


def _contents(snapshot: Snapshot, tied: dict[str, str]) -> Iterator[tuple[str, Iterable[disk.Bytes]]]:
    state = json.dumps(snapshot.state, indent=1).encode()
    if len(state) > manifest.LIMIT:
        raise MeristemError(f"{manifest.STATE} would have {len(state):,} bytes, more than {manifest.LIMIT:,}: "
                            "large values belong into the memory's tensors")
    stored = {name: tensor for name, tensor in snapshot.model.items() if name not in tied}
    yield manifest.MODEL, tensors.encode(stored)
    yield manifest.OPTIMIZER, tensors.encode(snapshot.optimizer)
    if snapshot.memory:
        yield manifest.MEMORY, tensors.encode(snapshot.memory)
    yield manifest.STATE, [state]
    yield manifest.RECIPE, [snapshot.recipe.encode()]
    if snapshot.tokenizer:
        yield manifest.TOKENIZER, disk.read(snapshot.tokenizer.resolve())


def _same(new: Path, old: Path) -> bool:
    """Whether an old checkpoint of the same step is good and holds the very same bytes."""
    return not verify(old) and (old / manifest.MANIFEST).read_bytes() == (new / manifest.MANIFEST).read_bytes()


def _retire(checkpoints: Path, saved: int, keep: int) -> None:
    """Remove what is no longer kept; a failure here costs room, never a checkpoint."""
    # Steps beyond the saved one belong to a future that was given up when the run went back: they go first.
    newest = sorted(layout.steps(checkpoints), key=lambda step: (step <= saved, step), reverse=True)
    best = layout.pointed(checkpoints, "best")
    try:
        for step in newest[keep:]:
            if step != best:
                layout.retire(checkpoints, step)
        layout.tidy(checkpoints)
    except OSError as error:
        log.warning("%s: an old checkpoint is no longer needed but could not be removed: %s", checkpoints, error)


def _told(folder: Path, error: OSError) -> str:
    """What failed, what is still safe, and what to do."""
    last = layout.pointed(folder.parent, "latest")
    kept = "there is no earlier one"
    if last is not None:
        kept = f"the last good checkpoint is kept: {layout.folder_name(last)}"
    where = error.filename or folder.parent
    return f"{folder} could not be saved: {error.strerror or error} ({where}); {kept}; {remedy(error)}"
