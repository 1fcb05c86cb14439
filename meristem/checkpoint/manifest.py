"""`manifest.json`: what a checkpoint must hold, so that any other bit is noticed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk
from meristem.checkpoint.disk import Digest
from meristem.errors import MeristemError

FORMAT = 1
LIMIT = 16 << 20  # bytes; text that is parsed is read whole, so its size is bounded first

MANIFEST = "manifest.json"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
MEMORY = "memory.safetensors"
STATE = "state.json"
RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer.json"

NEEDED = frozenset({MODEL, OPTIMIZER, STATE, RECIPE})
POSSIBLE = NEEDED | {MEMORY, TOKENIZER}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a checkpoint, and which names of the model share a tensor."""

    step: int
    files: dict[str, Digest]
    aliases: dict[str, str]
    """A tied name → the name its tensor is stored under."""

    def text(self) -> bytes:
        """The one way of writing this manifest, sealed with the digest of itself."""
        body = {"format": FORMAT, **asdict(self)}
        return _written(body | {"seal": hashlib.sha256(_written(body)).hexdigest()})


def read(folder: Path) -> Manifest:
    """The manifest of a checkpoint folder."""
    try:
        return parse(small(folder / MANIFEST))
    except FileNotFoundError:
        raise MeristemError(f"{MANIFEST} is missing: the folder is not a checkpoint, or was only half copied") from None


def parse(text: bytes) -> Manifest:
    """A manifest from its text; anything but what `Manifest.text` writes is refused."""
    try:
        content = bounded.strict(text)
    except ValueError:
        raise MeristemError(f"{MANIFEST} is damaged: it is not JSON") from None
    if not isinstance(content, dict):
        raise MeristemError(f"{MANIFEST} is damaged: it is not a JSON object")
    if (version := content.get("format")) != FORMAT:
        raise MeristemError(f"{MANIFEST} says format {version!r:.40} and this version of meristem reads {FORMAT}: "
                            "use the version that wrote it")
    manifest = _checked(content)
    if manifest.text() != text:
        raise MeristemError(f"{MANIFEST} is damaged: it does not match its own seal")
    return manifest


def small(path: Path) -> bytes:
    """A file that is read whole because it cannot be large."""
    with disk.regular(path) as file:
        if (size := os.fstat(file).st_size) > LIMIT:
            raise MeristemError(f"{path.name} has {size:,} bytes, more than the {LIMIT:,} such a file may have")
        return os.read(file, LIMIT)


def _checked(content: dict[str, Any]) -> Manifest:
    """The types hold, and no name leads out of the folder."""
    step, files, aliases = (content.get(key) for key in ("step", "files", "aliases"))
    if type(step) is not int or not isinstance(files, dict) or not isinstance(aliases, dict):
        raise MeristemError(f"{MANIFEST} is damaged: step, files or aliases are not what they must be")
    if strange := sorted(set(files) - POSSIBLE):
        raise MeristemError(f"{MANIFEST} names {strange[0]!r}, which no checkpoint holds: it is refused")
    if missing := sorted(NEEDED - set(files)):
        raise MeristemError(f"{MANIFEST} is damaged: it does not name {', '.join(missing)}")
    if not all(isinstance(name, str) for name in aliases.values()):
        raise MeristemError(f"{MANIFEST} is damaged: an alias is not a name")
    return Manifest(step=step, files={name: _digest(name, value) for name, value in files.items()}, aliases=aliases)


def _digest(name: str, value: Any) -> Digest:
    if isinstance(value, dict) and set(value) == {"size", "sha256"} and type(value["size"]) is int:
        sha = value["sha256"]
        if isinstance(sha, str) and re.fullmatch("[0-9a-f]{64}", sha):
            return Digest(value["size"], sha)
    raise MeristemError(f"{MANIFEST} is damaged: no size and SHA-256 for {name}")


def _written(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
