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
"""The format that is written. A folder of an older format is read; docs/decisions/0010 says what each one was."""
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
ENTRIES = frozenset({"format", "step", "files", "aliases"})


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a checkpoint, and which names of the model share a tensor."""

    step: int
    files: dict[str, Digest]
    aliases: dict[str, str]
    """A tied name → the name its tensor is stored under."""
    format: int = FORMAT

    def text(self) -> bytes:
        """The one way of writing this manifest, sealed with the digest of itself."""
        return _sealed(asdict(self))


class NewerFormatError(MeristemError):
    """A checkpoint that a later version wrote: it is not damaged, and no older one may take its place."""


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
    body = {name: value for name, value in content.items() if name != "seal"}
    if _sealed(body) != text:  # before its format is believed: a flipped bit is damage, not a later version
        raise MeristemError(f"{MANIFEST} is damaged: it does not match its own seal")
    version = content.get("format", 1)
    if type(version) is int and version > FORMAT:
        raise NewerFormatError(f"{MANIFEST} says format {version}, and this version of meristem reads formats up to "
                               f"{FORMAT}: update meristem, or use the version that wrote it")
    if type(version) is not int or version < 1 or not body.keys() <= ENTRIES:
        raise MeristemError(f"{MANIFEST} is damaged: its format is no number, or it has entries that none has")
    return _checked(content, version)


def small(path: Path) -> bytes:
    """A file that is read whole because it cannot be large."""
    with disk.regular(path) as file:
        if (size := os.fstat(file).st_size) > LIMIT:
            raise MeristemError(f"{path.name} has {size:,} bytes, more than the {LIMIT:,} such a file may have")
        return os.read(file, LIMIT)


def _checked(content: dict[str, Any], version: int) -> Manifest:
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
    digests = {name: _digest(name, value) for name, value in files.items()}
    return Manifest(step=step, files=digests, aliases=aliases, format=version)


def _digest(name: str, value: Any) -> Digest:
    if isinstance(value, dict) and set(value) == {"size", "sha256"} and type(value["size"]) is int:
        sha = value["sha256"]
        if isinstance(sha, str) and re.fullmatch("[0-9a-f]{64}", sha):
            return Digest(value["size"], sha)
    raise MeristemError(f"{MANIFEST} is damaged: no size and SHA-256 for {name}")


def _sealed(body: dict[str, Any]) -> bytes:
    return _written(body | {"seal": hashlib.sha256(_written(body)).hexdigest()})


def _written(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
