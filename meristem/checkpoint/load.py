"""Loading: verified first, what is damaged is named, and the newest good checkpoint is used. Nothing executes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meristem import bounded
from meristem.checkpoint import disk, layout, manifest, tensors
from meristem.checkpoint.disk import Digest
from meristem.checkpoint.manifest import Manifest, NewerFormatError
from meristem.checkpoint.snapshot import Snapshot
from meristem.errors import MeristemError
from meristem.system_errors import is_damage, system_error_message

Pointer = Literal["latest", "best"]
TRAINING_ONLY = frozenset({manifest.OPTIMIZER, manifest.MEMORY})
"""Files that nothing but resuming reads."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A good snapshot, where it lies, and what had to be passed over to find it."""

    snapshot: Snapshot
    path: Path
    notices: tuple[str, ...]


def load(
    checkpoints: Path, *, step: int | None = None, which: Pointer = "latest", weights_only: bool = False
) -> Loaded | None:
    """The checkpoint asked for, or the newest good one in its place; None where there is none at all.

    With `weights_only` what only training needs, the optimizer's state and memory, is neither hashed nor read.
    """
    if checkpoints.is_dir():
        layout.tidy_if_idle(checkpoints)
    elif checkpoints.exists():
        raise MeristemError(f"{checkpoints} is no folder of checkpoints: the file "
                            f"{tensors.what_else(checkpoints) or 'is none that meristem wrote'}")
    if step is not None:
        return _exactly(checkpoints, step, weights_only)
    damaged: dict[int, str] = {}
    # The list is made anew each time: a run that is still training may retire what was about to be read.
    while untried := [number for number in _order(checkpoints, which) if number not in damaged]:
        folder = checkpoints / layout.folder_name(untried[0])
        found = _open(folder, weights_only)
        if isinstance(found, Snapshot):
            doubts = _doubts(checkpoints, which)
            return Loaded(snapshot=found, path=folder, notices=(*doubts, *damaged.values()))
        if folder.exists():
            damaged[untried[0]] = found
    if damaged:
        raise MeristemError("\n  ".join([f"no checkpoint in {checkpoints} is good:", *damaged.values()]))
    if checkpoints.is_dir() and (dangers := tensors.pickles(checkpoints)):
        raise MeristemError("\n  ".join([f"{checkpoints} holds no checkpoint that can be used:", *dangers]))
    return None


def verify(folder: Path, *, weights_only: bool = False) -> list[str]:
    """What is wrong with a checkpoint folder; nothing, if it is good. One of a later format is refused at once."""
    if folder.is_symlink():
        return ["it is a link: a run holds its own checkpoints"]
    try:
        content = manifest.read(folder)
    except NewerFormatError as error:
        raise NewerFormatError(f"{folder}: {error}") from None
    except (MeristemError, OSError) as error:
        refuse_unreadable(folder, error)
        return [str(error), *(tensors.pickles(folder) if folder.is_dir() else ())]
    problems = [f"{manifest.MANIFEST} is of step {content.step}: the folder was renamed"]
    if layout.step_of(folder.name) in (content.step, None):
        problems = []
    unread = TRAINING_ONLY if weights_only else frozenset[str]()
    read = {name: digest for name, digest in content.files.items() if name not in unread}
    problems += [said for name, digest in read.items() if (said := _file_problem(folder / name, digest))]
    return problems or content_problems(folder, content, unread=unread)


def _exactly(checkpoints: Path, step: int, weights_only: bool) -> Loaded:
    """One step and no other: whoever names a step does not want its neighbour."""
    there = layout.steps(checkpoints)
    if step not in there:
        known = ", ".join(map(str, there)) or "none"
        raise MeristemError(f"{checkpoints} has no checkpoint of step {step}; there are: {known}")
    folder = checkpoints / layout.folder_name(step)
    found = _open(folder, weights_only)
    if isinstance(found, str):
        raise MeristemError(f"{checkpoints}: {found}; leave the step out to use the newest good one")
    return Loaded(snapshot=found, path=folder, notices=())


def _order(checkpoints: Path, which: Pointer) -> list[int]:
    """What is tried, in turn: the one asked for, the latest, then the newest first."""
    there = layout.steps(checkpoints)
    named = [layout.pointed(checkpoints, pointer) for pointer in (which, "latest")]
    return list(dict.fromkeys([step for step in named if step in there] + there))


def _doubts(checkpoints: Path, which: Pointer) -> list[str]:
    """Where the pointer and the folders do not agree."""
    named, there = layout.pointed(checkpoints, which), layout.steps(checkpoints)
    if named is None:
        return [f"`{which}` names no checkpoint: the newest good one is used"]
    if named not in there:
        return [f"`{which}` names {layout.folder_name(named)}, which is gone: the newest good one is used"]
    if which == "latest" and there[0] > named:
        return [f"{layout.folder_name(there[0])} lies beyond {layout.folder_name(named)}, which `latest` names"]
    return []


def _open(folder: Path, weights_only: bool) -> Snapshot | str:
    """The snapshot in a folder, or what is wrong with it."""
    problems = verify(folder, weights_only=weights_only)
    if not problems:
        try:
            return _read(folder, weights_only)
        except (MeristemError, OSError, ValueError) as error:  # it changed while it was read
            refuse_unreadable(folder, error)
            problems = [str(error)]
    return f"{folder.name} is damaged: {'; '.join(problems)}"


def _read(folder: Path, weights_only: bool) -> Snapshot:
    content = manifest.read(folder)
    model = tensors.decode(folder / manifest.MODEL)
    remembers = manifest.MEMORY in content.files and not weights_only
    return Snapshot(
        step=content.step,
        model=model | {alias: model[stored] for alias, stored in content.aliases.items()},
        optimizer={} if weights_only else tensors.decode(folder / manifest.OPTIMIZER),
        memory=tensors.decode(folder / manifest.MEMORY) if remembers else {},
        state=_state(folder),
        recipe=manifest.small(folder / manifest.RECIPE).decode(),
        tokenizer=folder / manifest.TOKENIZER if manifest.TOKENIZER in content.files else None,
    )


def _file_problem(path: Path, expected: Digest) -> str | None:
    """Whether a file is not the one that was written."""
    if path.is_symlink():
        return f"{path.name} is a link: a checkpoint holds its own files"
    try:
        with disk.regular(path) as file:
            size = os.fstat(file).st_size
        # A wrong size says enough: a file grown to terabytes is not read to the end.
        if size == expected.size and disk.digest(path) == expected:
            return None
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        refuse_unreadable(path, error)
        return f"{path.name} cannot be read: {error.strerror}"
    if danger := tensors.what_else(path):
        return f"{path.name} {danger}"
    if size != expected.size:
        return f"{path.name} has {size:,} bytes instead of {expected.size:,}"
    return f"{path.name} has changed since it was written (its SHA-256 differs)"


def refuse_unreadable(place: Path, error: Exception) -> None:
    """Stop where a limit or a permission keeps a checkpoint from being read: it is not damaged, and an older one in its
    place would lose the steps since, on disk too."""
    if not is_damage(error):
        reason = system_error_message(error) or str(error)
        raise MeristemError(f"{place} cannot be read now, and nothing says that it is damaged: {reason}") from None


def content_problems(folder: Path, content: Manifest, *, unread: frozenset[str] = frozenset()) -> list[str]:
    """Files that are as they were written, and yet are not what a checkpoint holds."""
    problems = []
    files = [name for name in content.files if name.endswith(".safetensors") and name not in unread]
    try:
        held = {name: tensors.names(folder / name) for name in files}
        for alias, stored in content.aliases.items():
            if stored not in held[manifest.MODEL] or alias in held[manifest.MODEL]:
                problems.append(f"{manifest.MANIFEST} ties {alias} to {stored}, which is not so in {manifest.MODEL}")
        _state(folder)
        manifest.small(folder / manifest.RECIPE).decode()
    except UnicodeDecodeError:
        problems.append(f"{manifest.RECIPE} is not UTF-8 text")
    except (MeristemError, OSError) as error:
        refuse_unreadable(folder, error)
        problems.append(str(error))
    return problems


def _state(folder: Path) -> dict[str, Any]:
    try:
        state = bounded.row(manifest.small(folder / manifest.STATE))
    except ValueError:
        raise MeristemError(f"{manifest.STATE} is not JSON") from None
    if not isinstance(state, dict):
        raise MeristemError(f"{manifest.STATE} is not a JSON object")
    return state
