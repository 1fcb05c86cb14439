"""Click models on disk: fitted once for a table and its settings, then read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from meristem import bounded
from meristem.checkpoint import disk
from meristem.corpus.file_contents import FileContents
from meristem.reinforce.clicks.calibration import Calibration
from meristem.reinforce.clicks.features import Features
from meristem.reinforce.clicks.fitting import Weights
from meristem.reinforce.clicks.model import ClickModel, ModelSettings
from meristem.reinforce.clicks.queries import Words
from meristem.reinforce.clicks.table import Clicks
from meristem.reinforce.clicks.vectors import vectors_of

VERSION = 1
"""Raised whenever the same table would give another model."""


def fitted(table: Clicks, settings: ModelSettings, folder: Path, say: Callable[[str], None]) -> ClickModel:
    """The click model of a table: found in the folder, or fitted now and kept there."""
    whole = json.dumps([VERSION, settings.model_dump(), table.digest, *map(_state, (settings.vectors, settings.embed))])
    path = folder / "clicks" / f"{hashlib.sha256(whole.encode()).hexdigest()[:20]}.safetensors"
    found = _read(path, table, settings)
    if found is None:
        say(f"clicks: fitting a click model to {len(table.texts):,} texts of {len(table.queries):,} queries")
        found = ClickModel.fit(table, settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.replace(path, [_written(found)])
    return found


def _state(name: str | None) -> list[Any]:
    """What changes when a file or a run's checkpoints do."""
    if name is None:
        return []
    path = Path(name).expanduser()
    files = [path] if path.is_file() else sorted(path.glob("checkpoints/*/manifest.json"))
    contents = FileContents()
    state = [[str(file), *contents.key(file)[1:]] for file in files]
    contents.save()
    return state


def _written(model: ClickModel) -> bytes:
    features = model.features
    tensors = {"ids": features.ids, "rarity": features.rarity, "mean": features.mean, "spread": features.spread,
               "words": model.words.ids, "scores": model.scores, "levels": model.levels}  # fmt: skip
    for name in ("text", "query", "own", "looks"):
        tensors[f"weights.{name}"] = np.stack([getattr(one, name) for one in model.weights])
    tensors["weights.level"] = np.array([one.level for one in model.weights])
    told = {"spoken": features.spoken, "strength": model.strength, "calibration": asdict(model.calibration)}
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return save(whole, {"model": bounded.to_json(told, ascii_only=True)})


def _read(path: Path, table: Clicks, settings: ModelSettings) -> ClickModel | None:
    """What was fitted before; nothing where it is not there or no longer whole."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            told = bounded.strict(file.metadata()["model"])
            tensor = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        calibration = Calibration(**told["calibration"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
    features = Features(**{name: tensor[name] for name in ("ids", "rarity", "mean", "spread")}, spoken=told["spoken"],
                        dense=vectors_of(settings.vectors, settings.embed))  # fmt: skip
    parts = [tensor[f"weights.{name}"] for name in ("text", "query", "own", "looks", "level")]
    weights = tuple(Weights(text=text, query=query, own=own, looks=looks, level=float(level))
                    for text, query, own, looks, level in zip(*parts, strict=True))  # fmt: skip
    return ClickModel(table=table, features=features, words=Words(tensor["words"]), weights=weights,
                      scores=tensor["scores"], levels=tensor["levels"], calibration=calibration,
                      strength=told["strength"])  # fmt: skip
