"""Random mutations of a run folder: bytes, tensors, JSON and YAML values, whole files.

A mutation is a pure function of its number. Where it is `sealed`, the checkpoint's manifest is made true of the changed
files again, as somebody with bad intentions would; otherwise the manifest betrays it. What nobody could tell from an
honest checkpoint is left out: other finite values, and a parameter that its optimizer never met.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from hostile.making import reseal
from torch import Tensor

from meristem.checkpoint import disk, tensors

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, -(2**63), 10**30, 1e308, -1e308, 0.5, "", "x", "x" * 5000,
    "../..", "/etc/passwd", [], {}, [[]], [1, 2], {"x": 1}, ["a", None], "\u0000", "\x1b[2J", "none", "1epoch", "https://example.invalid",
)  # fmt: skip
"""What stands in the place of a value."""


def mutate(run: Path, number: int) -> str:
    """Change one thing of a run folder; what was changed, in words."""
    rng = random.Random(number)
    kinds: list[tuple[Callable[[Path, random.Random], str], int]] = [
        (_tensor, 8), (_bytes, 4), (_json, 6), (_yaml, 4), (_metrics, 3), (_file, 3),
    ]  # fmt: skip
    (kind,) = rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
    return kind(run, rng)


def _checkpoint(run: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(run.glob("checkpoints/step-*")))


# ------------------------------------------------------------ tensors


def _tensor(run: Path, rng: random.Random) -> str:
    """Another shape, type, name or value of one tensor, always sealed."""
    folder = _checkpoint(run, rng)
    name = rng.choice([name for name in ("optimizer", "optimizer", "memory", "model") if _there(folder, name)])
    path = folder / f"{name}.safetensors"
    content = tensors.decode(path)
    if not content:
        return _bytes(run, rng)
    key = rng.choice(sorted(content))
    alone = sum(other.startswith(key.rpartition("/")[0] + "/") for other in content) == 1
    said, changed = rng.choice([one for one in _changed(content[key], rng) if not (alone and one[1] is None)])
    new = {**content, key: changed} if changed is not None else {k: v for k, v in content.items() if k != key}
    if rng.random() < 0.1:
        said, new = "renamed", {(f"{k}x" if k == key else k): v for k, v in content.items()}
    disk.store(path.with_name("changed"), tensors.encode(new))
    path.with_name("changed").replace(path)
    reseal(folder)
    return f"{folder.name}/{path.name}: {key} {said}"


def _there(folder: Path, name: str) -> bool:
    return (folder / f"{name}.safetensors").is_file()


def _changed(tensor: Tensor, rng: random.Random) -> Iterator[tuple[str, Tensor | None]]:
    yield "dropped", None
    yield "of shape [1]", torch.ones(1, dtype=tensor.dtype)
    yield "of shape [0]", torch.ones(0, dtype=tensor.dtype)
    yield "without a shape", torch.ones((), dtype=tensor.dtype) if tensor.dim() else torch.ones(3, dtype=tensor.dtype)
    yield "with one more dimension", tensor[None]
    yield "flattened", tensor.reshape(-1) if tensor.dim() > 1 else tensor[None, None]
    yield "longer", torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
    for dtype in (torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool):
        if dtype != tensor.dtype:
            yield f"as {dtype}", tensor.to(dtype)
    if tensor.is_floating_point():
        for value in (float("nan"), float("inf"), float("-inf")):
            spoiled = tensor.clone()
            spoiled.view(-1)[rng.randrange(spoiled.numel())] = value
            yield f"with one {value}", spoiled


# ------------------------------------------------------------ text


def _json(run: Path, rng: random.Random) -> str:
    """One value of a JSON file, at any depth; a checkpoint's is sealed or not."""
    folder = _checkpoint(run, rng)
    inside = [folder / "state.json", folder / "state.json", folder / "manifest.json", folder / "tokenizer.json"]
    path = rng.choice([*inside, run / "data.json", run / "tokenizer.json"])
    if not path.is_file():
        return _bytes(run, rng)
    content = json.loads(path.read_bytes())
    place = _replace_leaf(content, rng)
    path.write_text(json.dumps(content), encoding="utf-8")
    if path.parent == folder and path.name != "manifest.json" and rng.random() < 0.8:
        reseal(folder)
    return f"{path.name}: {place}"


def _yaml(run: Path, rng: random.Random) -> str:
    """One setting of the run's recipe."""
    path = run / "recipe.yaml"
    content = yaml.safe_load(path.read_bytes())
    place = _replace_leaf(content, rng)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return f"{path.name}: {place}"


def _replace_leaf(content: Any, rng: random.Random) -> str:
    """Put another value, or nothing, in the place of a random one; its dotted place."""
    place: list[str] = []
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = rng.choice(keys)
        place.append(str(key))
        inner = content[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.9:
            content = inner
            continue
        if rng.random() < 0.15:
            del content[key]
            return f"{'.'.join(place)} is gone"
        content[key] = rng.choice([value for value in VALUES if type(value) is not type(inner) or value != inner])
        return f"{'.'.join(place)} = {content[key]!r:.60}"


def _metrics(run: Path, rng: random.Random) -> str:
    """One line of the metrics."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    number = rng.randrange(len(lines))
    entry = json.loads(lines[number])
    place = _replace_leaf(entry, rng)
    lines[number] = rng.choice([json.dumps(entry).encode(), b"[]", b"17", b"\xff\xfe", b"{" * 200, b'{"step": 1e999}'])
    path.write_bytes(b"\n".join(lines) + b"\n")
    return f"metrics.jsonl: line {number}: {place}"


# ------------------------------------------------------------ bytes and files


def _bytes(run: Path, rng: random.Random) -> str:
    """Some bytes of any file flipped, cut off or put in."""
    path = rng.choice(sorted(p for p in run.rglob("*") if p.is_file() and p.stat().st_size and ".lock" not in p.name))
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    match rng.randrange(3):
        case 0:
            content[at] ^= 1 << rng.randrange(8)
            said = f"bit of byte {at} flipped"
        case 1:
            del content[at:]
            said = f"cut off at {at}"
        case _:
            content[at:at] = rng.randbytes(rng.randrange(1, 64))
            said = f"bytes put in at {at}"
    path.write_bytes(content)
    return f"{path.relative_to(run)}: {said}"


def _file(run: Path, rng: random.Random) -> str:
    """A file that is gone, empty, a folder or a link."""
    path = rng.choice(sorted(p for p in run.rglob("*") if p.is_file() and ".lock" not in p.name))
    path.unlink()
    said = rng.choice(["gone", "empty", "a folder", "a link"])
    if said == "empty":
        path.touch()
    elif said == "a folder":
        path.mkdir()
    elif said == "a link":
        path.symlink_to(run / "nowhere")
    return f"{path.relative_to(run)}: {said}"


def copied(run: Path, folder: Path) -> Path:
    """A copy of a run to be changed."""
    return Path(shutil.copytree(run, folder, symlinks=True))
