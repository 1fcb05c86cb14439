"""Checkpoint manifest (`manifest.json`): sizes and SHA-256 of all files, tied tensors, and the format version."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk
from meristem.checkpoint.disk import Digest
from meristem.config.errors import MeristemError
from meristem.utils import untrusted_files

FORMAT = 2
"""The format that is written. Older formats can be read; docs/decisions/0010 describes each of them."""
MAX_TEXT_BYTES = 16 << 20  # text that is parsed is read at once, so its size is limited

MANIFEST = "manifest.json"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
MEMORY = "memory.safetensors"
STATE = "state.json"
RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer.json"

REQUIRED_FILES = frozenset({MODEL, OPTIMIZER, STATE, RECIPE})
ALLOWED_FILES = REQUIRED_FILES | {MEMORY, TOKENIZER}
ALLOWED_KEYS = frozenset({"format", "step", "files", "aliases"})


@dataclass(frozen=True, kw_only=True)
class CheckpointManifest:
    """The files of a checkpoint, and which names of the model are tied."""

    step: int
    files: dict[str, Digest]
    aliases: dict[str, str]
    """Tied name → name under which its tensor is stored."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """The canonical JSON of this manifest, with the digest of itself."""
        return _dump_with_seal(asdict(self))


class NewerFormatError(MeristemError):
    """A checkpoint written by a newer version: it is not damaged, and no older one is used instead."""


def read_manifest(folder: Path) -> CheckpointManifest:
    """The manifest of a checkpoint folder."""
    try:
        return parse_manifest(read_small_file(folder / MANIFEST))
    except FileNotFoundError:
        raise MeristemError(f"{MANIFEST} is missing: the folder is not a checkpoint, or only a part of one") from None


def parse_manifest(text: bytes) -> CheckpointManifest:
    """Parse a manifest; raises for anything but what `CheckpointManifest.to_bytes` writes."""
    try:
        content = untrusted_files.parse_strict_json(text)
    except ValueError:
        raise MeristemError(f"{MANIFEST} is damaged: it is not JSON") from None
    if not isinstance(content, dict):
        raise MeristemError(f"{MANIFEST} is damaged: it is not a JSON object")
    body = {name: value for name, value in content.items() if name != "seal"}
    if _dump_with_seal(body) != text:  # checked before the format: a flipped bit is damage, not a newer version
        raise MeristemError(f"{MANIFEST} is damaged: it does not match its own digest")
    version = content.get("format", 1)
    if type(version) is int and version > FORMAT:
        raise NewerFormatError(
            f"{MANIFEST} has format {version}, and this version of meristem reads formats up to "
            f"{FORMAT}: update meristem, or use the version that wrote it"
        )
    if type(version) is not int or version < 1 or not body.keys() <= ALLOWED_KEYS:
        raise MeristemError(f"{MANIFEST} is damaged: its format is not a number, or it has unknown entries")
    return _validate_manifest(content, version)


def read_small_file(path: Path) -> bytes:
    """Content of a file of at most `MAX_TEXT_BYTES`; raises if it is larger."""
    with disk.open_regular(path) as fd:
        if (size := os.fstat(fd).st_size) > MAX_TEXT_BYTES:
            raise MeristemError(f"{path.name} has {size:,} bytes, more than the maximum of {MAX_TEXT_BYTES:,}")
        return os.read(fd, MAX_TEXT_BYTES)


def _validate_manifest(content: dict[str, Any], version: int) -> CheckpointManifest:
    """The manifest, after checking types and that only known files are named."""
    step, files, aliases = (content.get(key) for key in ("step", "files", "aliases"))
    if type(step) is not int or not isinstance(files, dict) or not isinstance(aliases, dict):
        raise MeristemError(f"{MANIFEST} is damaged: step, files or aliases are missing or of the wrong type")
    if unexpected := sorted(set(files) - ALLOWED_FILES):
        raise MeristemError(f"{MANIFEST} names {unexpected[0]!r}, which is not a file of a checkpoint: it is refused")
    if missing := sorted(REQUIRED_FILES - set(files)):
        raise MeristemError(f"{MANIFEST} is damaged: it does not name {', '.join(missing)}")
    if not all(isinstance(name, str) for name in aliases.values()):
        raise MeristemError(f"{MANIFEST} is damaged: an alias is not a name")
    digests = {name: _parse_digest(name, value) for name, value in files.items()}
    return CheckpointManifest(step=step, files=digests, aliases=aliases, format=version)


def _parse_digest(name: str, value: Any) -> Digest:
    if isinstance(value, dict) and set(value) == {"size", "sha256"} and type(value["size"]) is int:
        sha = value["sha256"]
        if isinstance(sha, str) and re.fullmatch("[0-9a-f]{64}", sha):
            return Digest(value["size"], sha)
    raise MeristemError(f"{MANIFEST} is damaged: no size and SHA-256 for {name}")


def _dump_with_seal(body: dict[str, Any]) -> bytes:
    return _dump_json(body | {"seal": hashlib.sha256(_dump_json(body)).hexdigest()})


def _dump_json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
