"""What bad artifacts are made with: good things to spoil, and ways to write what should not be written."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.sandboxed_trial import PLANTED

from meristem.checkpoint import disk, manifest
from meristem.checkpoint.manifest import CheckpointManifest

REFUSED, PASSED, TAKEN = "refused", "passed over", "taken"
"""An error that names the file; a notice that names it, and something good in its place; or harmless after all."""
STEP = Path("checkpoints") / "step-00000002"
TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@dataclass(frozen=True, kw_only=True)
class Good:
    """Things that open, to be copied and spoiled."""

    run: Path
    published: Path
    store: Path


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A malformed or malicious file, the entry points that must refuse it, and the expected error message."""

    name: str
    make: Callable[[Path, Good], Path]
    """In an empty folder; the path that is opened comes back."""
    entry_points: tuple[str, ...]
    message: str = ""
    """Words of the message; the name of the bad file unless given."""
    outcome: str = REFUSED


class Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"mkdir {PLANTED}",)


BOMB = pickle.dumps({"state_dict": Bomb()}, protocol=4)


def file(name: str, content: bytes | Callable[[Path], object]) -> Callable[[Path, Good], Path]:
    """What makes a file of these bytes, or lets them be written."""

    def make(folder: Path, good: Good) -> Path:
        path = folder / name
        content(path) if callable(content) else path.write_bytes(content)
        return path

    return make


def run(folder: Path, good: Good) -> Path:
    """A copy of a good run."""
    return Path(shutil.copytree(good.run, folder / "run", symlinks=True))


def published(folder: Path, good: Good) -> Path:
    """A copy of a good folder of published weights."""
    return Path(shutil.copytree(good.published, folder / "published"))


def store(folder: Path, good: Good) -> Path:
    """A copy of a good store."""
    return Path(shutil.copytree(good.store, folder / "store"))


def reseal(folder: Path, **changes: Any) -> None:
    """Make a checkpoint's manifest true of whatever its files are now, as someone with bad intentions could."""
    content = manifest.read_manifest(folder)
    facts: dict[str, Any] = {"step": content.step, "aliases": content.aliases}
    facts["files"] = {name: disk.digest(folder / name) for name in content.files}
    (folder / "manifest.json").write_bytes(CheckpointManifest(**(facts | changes)).to_bytes())


def safetensors(header: Any, data: bytes = b"\0" * 8) -> bytes:
    """A safetensors file with this header, whatever it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def large(path: Path, first_bytes: bytes, filler: bytes, size: int, end: bytes = b"") -> Path:
    """A file of this size without holding it in memory."""
    block = filler * ((1 << 20) // len(filler))
    with path.open("wb") as file:
        file.write(first_bytes)
        for _ in range(size // len(block)):
            file.write(block)
        file.write(end)
    return path


def zipped(path: Path, filler: bytes, size: int) -> Path:
    """A gzip file that unpacks to this size: one part, as often as it takes."""
    part = gzip.compress(filler * ((16 << 20) // len(filler)))
    with path.open("wb") as file:
        for _ in range(size >> 24):
            file.write(part)
    return path
