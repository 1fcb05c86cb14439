"""Digests and metrics recorded of a run, and the numerics of the machine."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file

CLOCKS = frozenset({"seconds", "tokens_per_second", "mfu", "memory"})
"""Entries of metrics.jsonl about the machine, not the model."""
VECTOR_UNITS = re.compile(r"avx|amx|fma|sse4|neon|asimd|sve")


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Digest of names, dtypes, shapes and data."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def checkpoint(run: Path) -> Path:
    """The folder of the latest checkpoint."""
    return run / "checkpoints" / (run / "checkpoints" / "latest").read_text(encoding="ascii").strip()


def files_digest(folder: Path) -> dict[str, str]:
    """Digest of each tensor file of a checkpoint."""
    return {path.stem: tensors_digest(load_file(path)) for path in sorted(folder.glob("*.safetensors"))}


def files_norms(folder: Path) -> dict[str, list[float]]:
    """Euclidean norm and mean magnitude of each tensor file, for machines with other rounding."""
    flat = {path.stem: load_file(path).values() for path in sorted(folder.glob("*.safetensors"))}
    tensors_by_file = {
        name: torch.cat([tensor.double().reshape(-1) for tensor in tensors]) for name, tensors in flat.items()
    }
    return {
        name: rounded([float(tensor.norm()), float(tensor.abs().mean())]) for name, tensor in tensors_by_file.items()
    }


def names_in(path: Path) -> list[str]:
    """The names of the tensors in a file."""
    with safe_open(str(path), framework="numpy") as file:
        return sorted(file.keys())


def saved_names(run: Path) -> dict[str, Any]:
    """Tensor names, optimizer state names and JSON keys of the latest checkpoint."""
    folder = checkpoint(run)
    manifest, state = (json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("manifest", "state"))
    slots: dict[str, list[str]] = {}
    for entry in names_in(folder / "optimizer.safetensors"):
        name, _, slot = entry.rpartition("/")
        slots.setdefault(name, []).append(slot)
    memory = folder / "memory.safetensors"
    return {
        "tensors": sorted([*names_in(folder / "model.safetensors"), *manifest["aliases"]]),
        "optimizer": {name: " ".join(slot) for name, slot in slots.items()},
        "memory": names_in(memory) if memory.exists() else [],
        "manifest.json": sorted(manifest),
        "state.json": sorted(state),
    }


def metrics_lines(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without time measurements."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in CLOCKS} for line in lines]


def metrics_keys(run: Path) -> dict[str, list[str]]:
    """Kind of line → keys in metrics.jsonl."""
    keys: dict[str, set[str]] = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()):
        keys.setdefault(line["kind"], set()).update(line)
    return {kind: sorted(names_of_kind) for kind, names_of_kind in sorted(keys.items())}


def rounded(value: Any) -> Any:
    """A nested value with numbers rounded to seven digits."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def answers(loaded: Any, questions: Iterable[str]) -> dict[str, Any]:
    """The first predictions of a run, to compare with the recorded ones."""
    return {question: rounded(_ANSWERS[question](loaded)) for question in questions}


TEXT = "Ada walked home."
MASKED = "Ada walked [MASK]."
PICTURE = (np.arange(16 * 16 * 3).reshape(16, 16, 3) % 251).astype(np.uint8)


def _written(loaded: Any, prompt: Any) -> list[Any]:
    greedy = loaded.generate(prompt, greedy=True, max_tokens=6)[0][0]
    sampled = loaded.generate(prompt, seed=3, max_tokens=6)[0][0]
    return [[completion.text, completion.score] for completion in (greedy, sampled)]


_ANSWERS = {
    "generate": lambda loaded: _written(loaded, TEXT),
    "caption": lambda loaded: _written(loaded, PICTURE),
    "fill": lambda loaded: [
        [candidate.token, candidate.probability] for candidate in loaded.fill(MASKED, top=3)[0].candidates
    ],
    "score": lambda loaded: loaded.score(TEXT)[0].logprob,
    "detect": lambda loaded: [[detection.text, detection.probability] for detection in loaded.detect(TEXT)],
    "predict": lambda loaded: json.loads(json.dumps(loaded.predict(TEXT), default=vars)),
}


def numerics() -> dict[str, Any]:
    """What determines the last bits of a result: CPU, libraries, and a digest of a small computation."""
    cpu = cpu_facts()
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu": cpu.get("model name", platform.processor()),
        "vector_units": sorted(flag for flag in cpu.get("flags", "").split() if VECTOR_UNITS.match(flag)),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "digest": _computation(),
    }


def cpu_facts() -> dict[str, str]:
    """The first CPU in /proc/cpuinfo; empty on other systems."""
    path = Path("/proc/cpuinfo")
    first = path.read_text(encoding="utf-8").partition("\n\n")[0] if path.is_file() else ""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def _computation() -> str:
    """Digest of matrix products, exp, tanh and sums of fixed numbers."""
    results = {}
    for size in (16, 37, 96):
        values = torch.arange(size * size, dtype=torch.int64).reshape(size, size)
        a, b = ((values * factor % 1009).float() / 1009 - 0.5 for factor in (7, 613))
        product = a @ b
        results |= {f"{size} product": product, f"{size} exp": product.exp().softmax(-1)}
        results |= {f"{size} tanh": torch.nn.functional.gelu(product, approximate="tanh"), f"{size} sum": a.exp().sum()}
        results[f"{size} norm"] = torch.nn.functional.layer_norm(product, (size,))
    return tensors_digest(results)
