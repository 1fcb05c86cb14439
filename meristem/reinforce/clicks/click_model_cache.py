"""Cache of fitted click models on disk, keyed by table and settings."""

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

from meristem.checkpoint import disk
from meristem.config.setting_names import with_hashed_names
from meristem.corpus.file_contents import FileContents
from meristem.reinforce.clicks.calibration import Calibration
from meristem.reinforce.clicks.click_model import ClickModel, ClickModelSettings
from meristem.reinforce.clicks.click_table import ClickTable
from meristem.reinforce.clicks.fitting import ClickWeights
from meristem.reinforce.clicks.query_features import QueryVocabulary
from meristem.reinforce.clicks.text_features import TextFeatures
from meristem.reinforce.clicks.text_vectors import text_embedder
from meristem.utils import untrusted_files

VERSION = 1
"""Increment whenever the same table would give another model."""


def load_or_fit(
    table: ClickTable, settings: ClickModelSettings, folder: Path, say: Callable[[str], None]
) -> ClickModel:
    """The click model of a table, from the cache in the folder or fitted now."""
    cache_key = json.dumps(
        [
            VERSION,
            with_hashed_names(settings, settings.model_dump()),
            table.digest,
            *map(_file_state, (settings.word_vectors, settings.embedding_run)),
        ]
    )
    path = folder / "clicks" / f"{hashlib.sha256(cache_key.encode()).hexdigest()[:20]}.safetensors"
    model = _read_cached(path, table, settings)
    if model is None:
        say(f"clicks: fitting a click model to {len(table.texts):,} texts of {len(table.queries):,} queries")
        model = ClickModel.fit(table, settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.atomic_write(path, [_serialize(model)])
    return model


def _file_state(name: str | None) -> list[Any]:
    """Paths, sizes and times of a file or of a run's checkpoints, for the cache key."""
    if name is None:
        return []
    path = Path(name).expanduser()
    files = [path] if path.is_file() else sorted(path.glob("checkpoints/*/manifest.json"))
    contents = FileContents()
    state = [[str(file), *contents.key(file)[1:]] for file in files]
    contents.save()
    return state


def _serialize(model: ClickModel) -> bytes:
    features = model.features
    tensors = {"ids": features.ids, "rarity": features.rarity, "mean": features.mean, "spread": features.spread,
               "words": model.query_vocabulary.ids, "scores": model.scores, "levels": model.levels}  # fmt: skip
    for name in ("text", "query", "own", "looks"):
        tensors[f"weights.{name}"] = np.stack([getattr(weights, name) for weights in model.weights])
    tensors["weights.level"] = np.array([weights.level for weights in model.weights])
    metadata = {
        "spoken": features.natural_queries,
        "strength": model.prior_precision,
        "calibration": asdict(model.calibration),
    }
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return save(contiguous, {"model": untrusted_files.to_json(metadata, ascii_only=True)})


def _read_cached(path: Path, table: ClickTable, settings: ClickModelSettings) -> ClickModel | None:
    """The cached model; None where the file is missing or damaged."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = untrusted_files.parse_strict_json(file.metadata()["model"])
            tensor = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        calibration = Calibration(**metadata["calibration"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
    features = TextFeatures(
        **{name: tensor[name] for name in ("ids", "rarity", "mean", "spread")},
        natural_queries=metadata["spoken"],
        embed=text_embedder(settings.word_vectors, settings.embedding_run),
    )
    parts = [tensor[f"weights.{name}"] for name in ("text", "query", "own", "looks", "level")]
    weights = tuple(ClickWeights(text=text, query=query, own=own, looks=looks, level=float(level))
                    for text, query, own, looks, level in zip(*parts, strict=True))  # fmt: skip
    return ClickModel(
        table=table,
        features=features,
        query_vocabulary=QueryVocabulary(tensor["words"]),
        weights=weights,
        scores=tensor["scores"],
        levels=tensor["levels"],
        calibration=calibration,
        prior_precision=metadata["strength"],
    )
