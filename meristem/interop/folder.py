"""A folder as transformers saves it: config.json and weights, read without running anything it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem import bounded
from meristem.checkpoint import tensors
from meristem.errors import MeristemError
from meristem.interop import torch_files

SHOWN = 6  # names in an error
READ = frozenset({".json", ".safetensors", ".bin", ".txt", ".model", ".hdf5"})
"""Endings of the files that an import reads."""
SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def config_of(folder: Path) -> dict[str, Any]:
    """What config.json says, unless it asks for code of its own."""
    if not folder.is_dir():
        raise MeristemError(f"{folder}: there is no such folder")
    path = folder / "config.json"
    if not path.is_file():
        raise MeristemError(
            f"{folder}: holds no config.json; a folder saved by transformers has one beside its weights"
        )
    refuse_links(folder)
    config = bounded.read_mapping(path)
    words = folder / "tokenizer_config.json"
    for file, said in (path, config), (words, bounded.read_mapping(words) if words.is_file() else {}):
        if wanted := said.get("auto_map") or said.get("custom_pipelines"):
            raise MeristemError(f"{file}: wants code of its own to be run ({wanted}), which is never done here")
    return config


def refuse_links(folder: Path) -> None:
    """A link may lead to what the folder or the hub's cache around it holds, and nowhere else."""
    here = folder.resolve()
    snapshots = [one.parent for one in (here, here.parent) if one.parent.name == "snapshots"]  # a subfolder of one too
    homes = {here, *(one.parent / "blobs" for one in snapshots)}
    for path in sorted(folder.iterdir()):
        if path.suffix in READ and path.is_symlink() and not homes & set(_target(path).parents):
            raise MeristemError(f"{path}: is a link out of the folder, and is not followed; put the file itself there")


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop
        return Path("/")


class Weights:
    """The tensors of a folder by name, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._where: dict[str, Any] = {}
        """Name → the open safetensors file that holds it, or the tensor itself."""

    def __enter__(self) -> Weights:
        try:
            for path in _files(self.folder):
                self._open(path)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *why: object) -> None:
        self._where.clear()
        self._stack.close()

    def _open(self, path: Path) -> None:
        if path.suffix == ".bin":
            self._add(path, torch_files.read(path))
            return
        file = self._stack.enter_context(tensors.opened(path))
        self._add(path, dict.fromkeys(file.keys(), file))

    def _add(self, path: Path, found: dict[str, Any]) -> None:
        if twice := sorted(found.keys() & self._where.keys()):
            raise MeristemError(f"{self.folder}: {twice[0]} is in {path.name} and in another part")
        self._where |= found

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, name: object) -> bool:
        return name in self._where

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __getitem__(self, name: str) -> Tensor:
        found = self._where[name]
        return found if isinstance(found, Tensor) else found.get_tensor(name)


def _files(folder: Path) -> list[Path]:
    """The weight files: safetensors where there are any, whole or in parts, else torch's own."""
    for name in (SAFE, SAFE_INDEX, PICKLED, PICKLED_INDEX):
        if (folder / name).is_file():
            return _parts(folder / name) if name.endswith(".json") else [folder / name]
    raise MeristemError(f"{folder}: holds no weights ({SAFE}, its index, or {PICKLED})")


def _parts(index: Path) -> list[Path]:
    told = bounded.read_mapping(index).get("weight_map")
    if not isinstance(told, dict) or not told:
        raise MeristemError(f"{index}: says nothing about which file holds which weight (weight_map)")
    out = []
    for name in sorted(set(map(str, told.values()))):
        if not re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name) or name.startswith("."):
            raise MeristemError(f"{index}: {name!r} is no file beside it, and nothing else is opened")
        if not (index.parent / name).is_file():
            raise MeristemError(f"{index}: {name} is missing")
        out.append(index.parent / name)
    return out


def some(names: list[str], between: str = ", ") -> str:
    """The first of many names, and how many more there are."""
    rest = len(names) - SHOWN
    return between.join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
