"""Folders saved by transformers: config.json and weights, read without executing anything in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.checkpoint import tensors
from meristem.config.errors import MeristemError
from meristem.interop import torch_files
from meristem.utils import untrusted_files

MAX_NAMES = 6  # names in an error
READ_SUFFIXES = frozenset({".json", ".safetensors", ".bin", ".txt", ".model", ".hdf5"})
"""Suffixes of the files that an import reads."""
SAFETENSORS_FILE, SAFETENSORS_INDEX = "model.safetensors", "model.safetensors.index.json"
TORCH_FILE, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json; one that needs custom code is an error."""
    if not folder.is_dir():
        raise MeristemError(f"{folder}: no such folder")
    path = folder / "config.json"
    if not path.is_file():
        raise MeristemError(f"{folder}: has no config.json; a folder saved by transformers has one beside its weights")
    refuse_links(folder)
    config = untrusted_files.read_json_object(path)
    tokenizer_config = folder / "tokenizer_config.json"
    for file, content in (
        (path, config),
        (tokenizer_config, untrusted_files.read_json_object(tokenizer_config) if tokenizer_config.is_file() else {}),
    ):
        if custom_code := content.get("auto_map") or content.get("custom_pipelines"):
            raise MeristemError(f"{file}: needs custom code ({custom_code}), which is never executed here")
    return config


def refuse_links(folder: Path) -> None:
    """Raise an error for symbolic links that lead out of the folder or the hub's cache around it."""
    resolved = folder.resolve()
    # also for a subfolder of a snapshot
    snapshots = [parent.parent for parent in (resolved, resolved.parent) if parent.parent.name == "snapshots"]
    allowed_folders = {resolved, *(parent.parent / "blobs" for parent in snapshots)}
    for path in sorted(folder.iterdir()):
        if (
            path.suffix in READ_SUFFIXES
            and path.is_symlink()
            and not allowed_folders & set(_resolve_link(path).parents)
        ):
            raise MeristemError(
                f"{path}: is a symbolic link out of the folder, which is not followed; put the file itself there"
            )


def _resolve_link(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a symlink loop
        return Path("/")


class FolderWeights:
    """The tensors of a folder by name, read on access."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._sources: dict[str, Any] = {}
        """Name → the open safetensors file that has it, or the tensor itself."""

    def __enter__(self) -> FolderWeights:
        try:
            for path in _weight_files(self.folder):
                self._open(path)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._sources.clear()
        self._stack.close()

    def _open(self, path: Path) -> None:
        if path.suffix == ".bin":
            self._add(path, torch_files.read_tensors(path))
            return
        file = self._stack.enter_context(tensors.open_safetensors(path))
        self._add(path, dict.fromkeys(file.keys(), file))

    def _add(self, path: Path, sources: dict[str, Any]) -> None:
        if duplicates := sorted(sources.keys() & self._sources.keys()):
            raise MeristemError(f"{self.folder}: {duplicates[0]} is in {path.name} and in another part")
        self._sources |= sources

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __getitem__(self, name: str) -> Tensor:
        source = self._sources[name]
        return source if isinstance(source, Tensor) else source.get_tensor(name)


def _weight_files(folder: Path) -> list[Path]:
    """The weight files: safetensors if there are any, single or sharded, else torch's own."""
    for name in (SAFETENSORS_FILE, SAFETENSORS_INDEX, TORCH_FILE, TORCH_INDEX):
        if (folder / name).is_file():
            return _shard_files(folder / name) if name.endswith(".json") else [folder / name]
    raise MeristemError(f"{folder}: has no weights ({SAFETENSORS_FILE}, its index, or {TORCH_FILE})")


def _shard_files(index: Path) -> list[Path]:
    weight_map = untrusted_files.read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise MeristemError(f"{index}: has no weight_map, which says which file has which weight")
    paths = []
    for name in sorted(set(map(str, weight_map.values()))):
        if not re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name) or name.startswith("."):
            raise MeristemError(f"{index}: {name!r} is not a file beside it, and nothing else is opened")
        if not (index.parent / name).is_file():
            raise MeristemError(f"{index}: {name} is missing")
        paths.append(index.parent / name)
    return paths


def format_names(names: list[str], separator: str = ", ") -> str:
    """The first of many names, and how many more there are."""
    num_omitted = len(names) - MAX_NAMES
    return separator.join(names[:MAX_NAMES]) + (f" and {num_omitted} more" if num_omitted > 0 else "")
