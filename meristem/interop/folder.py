"""A folder as transformers saves it: config.json and weights, read without running anything it holds."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meristem.checkpoint import tensors
from meristem.settings import MeristemError

LARGEST = 64 << 20  # bytes of a JSON file; an index of a thousand shards stays under 10 MB
SHOWN = 6  # names in an error
SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds a mapping; anything else is refused with its place."""
    try:
        if path.stat().st_size > LARGEST:
            raise MeristemError(f"{path}: {path.stat().st_size / 1e6:.0f} MB is too large for {path.name}")
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise MeristemError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise MeristemError(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise MeristemError(f"{path}: expected a JSON object")
    return found


def config_of(folder: Path) -> dict[str, Any]:
    """What config.json says, unless it asks for code of its own."""
    if not folder.is_dir():
        raise MeristemError(f"{folder}: there is no such folder")
    path = folder / "config.json"
    if not path.is_file():
        raise MeristemError(
            f"{folder}: holds no config.json; a folder saved by transformers has one beside its weights"
        )
    config = read_json(path)
    words = folder / "tokenizer_config.json"
    for file, said in (path, config), (words, read_json(words) if words.is_file() else {}):
        if wanted := said.get("auto_map") or said.get("custom_pipelines"):
            raise MeristemError(f"{file}: wants code of its own to be run ({wanted}), which is never done here")
    return config


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
            self._add(path, _restricted(path))
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
    """The weight files: safetensors where there are any, whole or in parts, else torch's own.

    Links are followed wherever they lead: the cache of the hub is made of them, and a file is only read as tensors.
    """
    for name in (SAFE, SAFE_INDEX, PICKLED, PICKLED_INDEX):
        if (folder / name).is_file():
            return _parts(folder / name) if name.endswith(".json") else [folder / name]
    raise MeristemError(f"{folder}: holds no weights ({SAFE}, its index, or {PICKLED})")


def _parts(index: Path) -> list[Path]:
    told = read_json(index).get("weight_map")
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


def _restricted(path: Path) -> dict[str, Tensor]:
    """torch's own file through its restricted loader, which makes tensors and nothing else."""
    try:
        zipped = zipfile.is_zipfile(path)  # as torch has written since 2020; an older file cannot be mapped
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except MeristemError:
        raise
    except Exception as error:  # whatever a damaged or hostile file makes it say
        asked = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it asks for {asked[1]}" if asked else "it is damaged, or no file of torch's"
        raise MeristemError(f"{path}: not readable as plain tensors, and nothing else in it is run: {why}") from None
    if not isinstance(found, dict) or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in found.items()):
        raise MeristemError(f"{path}: holds something else than named tensors")
    return found


def some(names: list[str], between: str = ", ") -> str:
    """The first of many names, and how many more there are."""
    rest = len(names) - SHOWN
    return between.join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
