"""Loading checkpoints: verified by SHA-256, falling back to the newest intact one; nothing is unpickled."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meristem.checkpoint import disk, folder_layout, manifest, tensors
from meristem.checkpoint.disk import Digest
from meristem.checkpoint.manifest import CheckpointManifest, NewerFormatError
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.utils import untrusted_files
from meristem.utils.system_errors import is_damage, system_error_message

PointerName = Literal["latest", "best"]
TRAINING_ONLY_FILES = frozenset({manifest.OPTIMIZER, manifest.MEMORY})
"""Files that only resuming reads."""
RELISTS, RELIST_SECONDS = 20, 0.01
"""A listing during a save can miss both the new checkpoint and the one it replaces: readdir is not atomic."""


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """An intact snapshot, its folder, and notices about damaged checkpoints that were skipped."""

    snapshot: Snapshot
    path: Path
    notices: tuple[str, ...]


def load_checkpoint(
    checkpoints: Path, *, step: int | None = None, which: PointerName = "latest", weights_only: bool = False
) -> LoadedCheckpoint | None:
    """The requested checkpoint, or the newest intact one instead; None if there is no checkpoint.

    With `weights_only`, optimizer state and memory, which only training needs, are neither hashed nor read.
    """
    if checkpoints.is_dir():
        folder_layout.clean_up_if_idle(checkpoints)
    elif checkpoints.exists():
        raise MeristemError(
            f"{checkpoints} is not a folder of checkpoints: the file "
            f"{tensors.describe_unsafe_file(checkpoints) or 'was not written by meristem'}"
        )
    if step is not None:
        return _load_step(checkpoints, step, weights_only)
    damaged_steps: dict[int, str] = {}
    # Listed again each time: a run that is still training may delete the checkpoint that was about to be read.
    while remaining_steps := [step for step in _candidate_steps(checkpoints, which) if step not in damaged_steps]:
        folder = checkpoints / folder_layout.folder_name(remaining_steps[0])
        result = _try_read(folder, weights_only)
        if isinstance(result, Snapshot):
            pointer_notices = _pointer_notices(checkpoints, which)
            return LoadedCheckpoint(snapshot=result, path=folder, notices=(*pointer_notices, *damaged_steps.values()))
        if folder.exists():
            damaged_steps[remaining_steps[0]] = result
    if damaged_steps:
        raise MeristemError("\n  ".join([f"no checkpoint in {checkpoints} is intact:", *damaged_steps.values()]))
    if checkpoints.is_dir() and (unsafe := tensors.unsafe_files(checkpoints)):
        raise MeristemError("\n  ".join([f"{checkpoints} holds no checkpoint that can be used:", *unsafe]))
    return None


def find_problems(folder: Path, *, weights_only: bool = False) -> list[str]:
    """Problems with a checkpoint folder; empty if it is intact. Raises for one of a newer format."""
    if folder.is_symlink():
        return ["it is a symbolic link, which is not followed"]
    try:
        content = manifest.read_manifest(folder)
    except NewerFormatError as error:
        raise NewerFormatError(f"{folder}: {error}") from None
    except (MeristemError, OSError) as error:
        refuse_unreadable(folder, error)
        return [str(error), *(tensors.unsafe_files(folder) if folder.is_dir() else ())]
    is_renamed = folder_layout.parse_step(folder.name) not in (content.step, None)
    problems = [f"{manifest.MANIFEST} is for step {content.step}: the folder was renamed"] if is_renamed else []
    skipped_files = TRAINING_ONLY_FILES if weights_only else frozenset[str]()
    checked_files = {name: digest for name, digest in content.files.items() if name not in skipped_files}
    problems += [problem for name, digest in checked_files.items() if (problem := _file_problem(folder / name, digest))]
    return problems or content_problems(folder, content, skipped_files=skipped_files)


def _load_step(checkpoints: Path, step: int, weights_only: bool) -> LoadedCheckpoint:
    """Load exactly this step, without falling back to another."""
    available = folder_layout.list_steps(checkpoints)
    if step not in available:
        step_list = ", ".join(map(str, available)) or "none"
        raise MeristemError(f"{checkpoints} has no checkpoint of step {step}; there are: {step_list}")
    folder = checkpoints / folder_layout.folder_name(step)
    result = _try_read(folder, weights_only)
    if isinstance(result, str):
        raise MeristemError(f"{checkpoints}: {result}; leave the step out to use the newest intact one")
    return LoadedCheckpoint(snapshot=result, path=folder, notices=())


def _candidate_steps(checkpoints: Path, which: PointerName) -> list[int]:
    """Steps to try, in order: the requested one, the latest, then the newest first."""
    available = _list_steps_during_saves(checkpoints)
    pointed_steps = [folder_layout.read_pointer(checkpoints, pointer) for pointer in (which, "latest")]
    return list(dict.fromkeys([step for step in pointed_steps if step in available] + available))


def _list_steps_during_saves(checkpoints: Path) -> list[int]:
    """Saved steps, newest first; listed again while there are none and a save is in progress or has just ended."""
    for _ in range(RELISTS):
        pointed_step = folder_layout.read_pointer(checkpoints, "latest")
        steps = folder_layout.list_steps(checkpoints)
        if steps or pointed_step is None:
            return steps
        time.sleep(RELIST_SECONDS)
    return []


def _pointer_notices(checkpoints: Path, which: PointerName) -> list[str]:
    """Notices if the pointer does not match the folders."""
    pointed_step, available = folder_layout.read_pointer(checkpoints, which), folder_layout.list_steps(checkpoints)
    if pointed_step is None:
        return [f"`{which}` names no checkpoint: the newest intact one is used"]
    pointed_name = folder_layout.folder_name(pointed_step)
    if pointed_step not in available:
        return [f"`{which}` names {pointed_name}, which is gone: the newest intact one is used"]
    if which == "latest" and available[0] > pointed_step:
        return [f"{folder_layout.folder_name(available[0])} is later than {pointed_name}, which `latest` names"]
    return []


def _try_read(folder: Path, weights_only: bool) -> Snapshot | str:
    """The snapshot in a folder, or a message about its damage."""
    problems = find_problems(folder, weights_only=weights_only)
    if not problems:
        try:
            return _read_snapshot(folder, weights_only)
        except (MeristemError, OSError, ValueError) as error:  # it changed while it was read
            refuse_unreadable(folder, error)
            problems = [str(error)]
    return f"{folder.name} is damaged: {'; '.join(problems)}"


def _read_snapshot(folder: Path, weights_only: bool) -> Snapshot:
    content = manifest.read_manifest(folder)
    model = tensors.load_tensors(folder / manifest.MODEL)
    has_memory = manifest.MEMORY in content.files and not weights_only
    return Snapshot(
        step=content.step,
        model=model | {alias: model[stored] for alias, stored in content.aliases.items()},
        optimizer={} if weights_only else tensors.load_tensors(folder / manifest.OPTIMIZER),
        memory=tensors.load_tensors(folder / manifest.MEMORY) if has_memory else {},
        state=_read_state(folder),
        recipe=manifest.read_small_file(folder / manifest.RECIPE).decode(),
        tokenizer=folder / manifest.TOKENIZER if manifest.TOKENIZER in content.files else None,
    )


def _file_problem(path: Path, expected: Digest) -> str | None:
    """Problem with a file, if it is not the one that was written."""
    if path.is_symlink():
        return f"{path.name} is a symbolic link, which is not followed"
    try:
        with disk.open_regular(path) as fd:
            size = os.fstat(fd).st_size
        # The size is compared first, so that a file of terabytes is not hashed.
        if size == expected.size and disk.digest(path) == expected:
            return None
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        refuse_unreadable(path, error)
        return f"{path.name} cannot be read: {error.strerror}"
    if file_kind := tensors.describe_unsafe_file(path):
        return f"{path.name} {file_kind}"
    if size != expected.size:
        return f"{path.name} has {size:,} bytes instead of {expected.size:,}"
    return f"{path.name} has changed since it was written (its SHA-256 differs)"


def refuse_unreadable(path: Path, error: Exception) -> None:
    """Raise if a limit or a permission keeps a checkpoint from being read: it is not damaged, and falling back to an
    older one would lose the steps since then, also on disk."""
    if not is_damage(error):
        reason = system_error_message(error) or str(error)
        raise MeristemError(f"{path} cannot be read now, but does not seem to be damaged: {reason}") from None


def content_problems(
    folder: Path, content: CheckpointManifest, *, skipped_files: frozenset[str] = frozenset()
) -> list[str]:
    """Problems with the content of files whose digests are right."""
    problems = []
    files = [name for name in content.files if name.endswith(".safetensors") and name not in skipped_files]
    try:
        tensor_names = {name: tensors.read_names(folder / name) for name in files}
        for alias, stored in content.aliases.items():
            if stored not in tensor_names[manifest.MODEL] or alias in tensor_names[manifest.MODEL]:
                problems.append(f"{manifest.MANIFEST} ties {alias} to {stored}, which {manifest.MODEL} contradicts")
        _read_state(folder)
        manifest.read_small_file(folder / manifest.RECIPE).decode()
    except UnicodeDecodeError:
        problems.append(f"{manifest.RECIPE} is not UTF-8 text")
    except (MeristemError, OSError) as error:
        refuse_unreadable(folder, error)
        problems.append(str(error))
    return problems


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state = untrusted_files.parse_json_line(manifest.read_small_file(folder / manifest.STATE))
    except ValueError:
        raise MeristemError(f"{manifest.STATE} is not JSON") from None
    if not isinstance(state, dict):
        raise MeristemError(f"{manifest.STATE} is not a JSON object")
    return state
