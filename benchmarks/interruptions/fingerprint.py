"""Digests of the parts of a finished run that must not depend on interruptions."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from meristem.checkpoint import load
from meristem.checkpoint.folder_layout import REPLACED_PREFIX, RETIRED_PREFIX, WRITING_PREFIX, read_pointer
from meristem.checkpoint.run_folder import RunFolder

CLOCKS = ("seconds", "tokens_per_second", "mfu", "memory", "minutes", "finished", "date", "written")
"""Metrics of time or the machine, which are excluded."""


def fingerprint(out: Path, cache: Path) -> dict[str, str]:
    """Part → digest of a run or of a folder of several (grid, baselines), independent of its location."""
    parts: dict[str, str] = {}
    for recipe in sorted(out.rglob("recipe.yaml")):
        if RunFolder(recipe.parent).exists():
            parts |= {f"{recipe.parent.relative_to(out)}/{name}": value for name, value in _run(recipe.parent).items()}
    for name in ("grid.json", "report.json"):
        if (out / name).is_file():
            parts[name] = _json(_relative(json.loads((out / name).read_bytes()), {"OUT": out, "CACHE": cache}))
    if (out / "best").is_file():
        parts["best"] = (out / "best").read_text().strip()
    return {**parts, "left over": ", ".join(_left_over(out))}


def _run(folder: Path) -> dict[str, str]:
    loaded = load.load_checkpoint(folder / "checkpoints")
    if loaded is None:
        return {"checkpoint": "none"}
    snapshot = loaded.snapshot
    tensors = {"weights": snapshot.model, "optimizer": snapshot.optimizer, "memory": snapshot.memory}
    digests = {name: _tensors(tensor) for name, tensor in tensors.items()}
    digests["train state"] = _json(snapshot.state)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    digests["metrics"] = _json([json.loads(line) for line in lines])
    digests["results"] = _json(RunFolder(folder).finish_record)
    digests["best step"] = str(read_pointer(folder / "checkpoints", "best"))
    for name in ("tokenizer.json", "data.json"):
        digests[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    for name in ("README.md", "curves.png"):
        digests[name] = str((folder / name).is_file())
    digests["notices"] = "; ".join(loaded.notices)
    return digests


def _tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous().reshape(-1)
        digest.update(f"{name} {tensor.dtype}".encode() + tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _json(value: Any) -> str:
    return hashlib.sha256(json.dumps(_timeless(value), sort_keys=True).encode()).hexdigest()


def _timeless(value: Any) -> Any:
    """A value without its time measurements."""
    if isinstance(value, Mapping):
        return {name: _timeless(inner) for name, inner in value.items() if name not in CLOCKS}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def _relative(value: Any, folders: Mapping[str, Path]) -> Any:
    """A value with absolute paths replaced by names."""
    text = json.dumps(value)
    for name, folder in folders.items():
        text = text.replace(shlex.quote(str(folder)), name).replace(str(folder), name)
    return json.loads(text)


def _left_over(out: Path) -> list[str]:
    """Temporary files left behind by interrupted starts."""
    beginnings = (WRITING_PREFIX, REPLACED_PREFIX, RETIRED_PREFIX, ".begun")
    return sorted(
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.name.startswith(beginnings) or path.name.endswith((".new", ".partial", ".unfinished"))
    )
