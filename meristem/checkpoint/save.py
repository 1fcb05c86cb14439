"""Saving checkpoints atomically: written to a temporary folder, fsynced, read back, renamed; old ones deleted last."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from meristem.checkpoint import disk, file_lock, folder_layout, manifest, tensors
from meristem.checkpoint.load import content_problems, find_problems
from meristem.checkpoint.manifest import CheckpointManifest
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.utils.system_errors import remedy

log = logging.getLogger(__name__)


def save_checkpoint(checkpoints: Path, snapshot: Snapshot, *, keep_checkpoints: int = 3, is_best: bool = False) -> Path:
    """Save a snapshot, move `latest` (and `best`) to it, and keep the newest `keep_checkpoints` and the best."""
    if keep_checkpoints < 1 or snapshot.step < 0:
        raise MeristemError(f"a save needs keep ≥ 1 and step ≥ 0, got keep={keep_checkpoints} and step={snapshot.step}")
    name = folder_layout.folder_name(snapshot.step)
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
        with file_lock.hold_lock(checkpoints / folder_layout.LOCK_NAME, wait=True):
            folder_layout.clean_up(checkpoints)
            _write_folder(checkpoints, snapshot)
            if is_best:  # before `latest`: a run killed in between resumes at this step and does not evaluate it again
                folder_layout.write_pointer(checkpoints, "best", snapshot.step)
            folder_layout.write_pointer(checkpoints, "latest", snapshot.step)
            _remove_old(checkpoints, snapshot.step, keep_checkpoints)
    except OSError as error:
        raise MeristemError(_failure_message(checkpoints / name, error)) from error
    return checkpoints / name


def _write_folder(checkpoints: Path, snapshot: Snapshot) -> None:
    """Write the folder of a checkpoint, completely or not at all."""
    name = folder_layout.folder_name(snapshot.step)
    temporary, final, replaced = (
        checkpoints / f"{prefix}{name}" for prefix in (folder_layout.WRITING_PREFIX, "", folder_layout.REPLACED_PREFIX)
    )
    try:
        disk.make_folder(temporary)
        _write_files(temporary, snapshot)
        if final.exists():
            if _is_identical(temporary, final):
                return  # nothing to replace; the temporary folder is removed with the old checkpoints
            disk.rename(final, replaced)
        disk.rename(temporary, final)
        disk.sync_folder(checkpoints)
    except BaseException:
        with suppress(OSError):  # what cannot be removed now is removed by the next save or load
            folder_layout.clean_up(checkpoints)
        raise


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    """Write every file of a checkpoint, the manifest last, and verify each by reading it back."""
    aliases = tensors.find_aliases(snapshot.model)
    files = {name: disk.write_file(folder / name, chunks) for name, chunks in _file_contents(snapshot, aliases)}
    checkpoint_manifest = CheckpointManifest(step=snapshot.step, files=files, aliases=aliases)
    files[manifest.MANIFEST] = disk.write_file(folder / manifest.MANIFEST, [checkpoint_manifest.to_bytes()])
    disk.sync_folder(folder)
    for name, digest in files.items():
        if disk.read_back_digest(folder / name) != digest:
            raise OSError(errno.EIO, "the disk returned other data than was written", str(folder / name))
    if problems := content_problems(folder, checkpoint_manifest):
        raise MeristemError(f"{folder}: the saved checkpoint could not be loaded: {'; '.join(problems)}")


def _file_contents(snapshot: Snapshot, aliases: dict[str, str]) -> Iterator[tuple[str, Iterable[disk.BytesLike]]]:
    state = json.dumps(snapshot.state, indent=1).encode()
    if len(state) > manifest.MAX_TEXT_BYTES:
        raise MeristemError(
            f"{manifest.STATE} would have {len(state):,} bytes, more than {manifest.MAX_TEXT_BYTES:,}: "
            "keep large values in tensors (memory)"
        )
    stored = {name: tensor for name, tensor in snapshot.model.items() if name not in aliases}
    yield manifest.MODEL, tensors.encode_safetensors(stored)
    yield manifest.OPTIMIZER, tensors.encode_safetensors(snapshot.optimizer)
    if snapshot.memory:
        yield manifest.MEMORY, tensors.encode_safetensors(snapshot.memory)
    yield manifest.STATE, [state]
    yield manifest.RECIPE, [snapshot.recipe.encode()]
    if snapshot.tokenizer:
        yield manifest.TOKENIZER, disk.read_chunks(snapshot.tokenizer.resolve())


def _is_identical(new_folder: Path, old_folder: Path) -> bool:
    """Whether an existing checkpoint of the same step is intact and byte-identical."""
    return (
        not find_problems(old_folder)
        and (old_folder / manifest.MANIFEST).read_bytes() == (new_folder / manifest.MANIFEST).read_bytes()
    )


def _remove_old(checkpoints: Path, saved_step: int, keep_checkpoints: int) -> None:
    """Delete checkpoints beyond the number to keep; a failure here is only logged."""
    # Later steps than the saved one are left over from before the run went back to an earlier step: delete them first.
    newest = sorted(folder_layout.list_steps(checkpoints), key=lambda step: (step <= saved_step, step), reverse=True)
    best_step = folder_layout.read_pointer(checkpoints, "best")
    try:
        for step in newest[keep_checkpoints:]:
            if step != best_step:
                folder_layout.remove_checkpoint(checkpoints, step)
        folder_layout.clean_up(checkpoints)
    except OSError as error:
        log.warning("%s: an old checkpoint is no longer needed but could not be removed: %s", checkpoints, error)


def _failure_message(folder: Path, error: OSError) -> str:
    """Error message: what failed, which checkpoint is kept, and what to do."""
    latest_step = folder_layout.read_pointer(folder.parent, "latest")
    last_good = "there is no earlier one"
    if latest_step is not None:
        last_good = f"the last good checkpoint is kept: {folder_layout.folder_name(latest_step)}"
    location = error.filename or folder.parent
    return f"{folder} could not be saved: {error.strerror or error} ({location}); {last_good}; {remedy(error)}"
