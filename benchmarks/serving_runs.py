"""Runs with random weights for the server benchmarks, and the same exported for transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from meristem import api
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.task import TASKS
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.samples import pydocs
from meristem.tokenizers.train import train_tokenizer

LENGTH = 128
LABELS = {"labels": ("bad", "good"), "problem_type": "single"}
WRITES = {"beams": 2, "max_tokens": 8}
BESIDE: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "objective": "clm"},
    "bert": {"family": "bert", "objective": "mlm"},
    "reviews": {"family": "bert", "task": {"name": "classification", "backbone_mode": "bidirectional", **LABELS}},
}
"""Runs that are also exported for transformers."""
OTHERS: dict[str, dict[str, Any]] = {
    "names": {"family": "bert", "task": {"name": "tagging", "backbone_mode": "bidirectional", "labels": ("O", "B-x",
    "I-x")}},
    "squad": {"family": "bert", "task": {"name": "span", "backbone_mode": "bidirectional"}},
    "choices": {"family": "bert", "task": {"name": "choice", "backbone_mode": "bidirectional"}},
    "translator": {"family": "transformer", "task": {"name": "translation", "backbone_mode": "encoder_decoder",
    **WRITES}},
    "shortener": {"family": "transformer", "task": {"name": "summary", "backbone_mode": "encoder_decoder", **WRITES}},
    "talker": {"family": "gpt2", "task": {"name": "dialogue", "backbone_mode": "causal", **WRITES}},
    "captioner": {"family": "captioner", "image_size": 64,
                  "task": {"name": "caption", "backbone_mode": "encoder_decoder", "image_size": 64, **WRITES}},
}  # fmt: skip
"""Further runs, so that every route has a run with the needed capability."""


def texts() -> list[str]:
    """Text that exists on every machine: docstrings of Python's standard library."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return [text for path in files for text in pydocs.module_prose(path)]


def make(work_folder: Path, *, layers: int, width: int, vocabulary: int) -> tuple[Path, Path]:
    """(folder of runs, folder of the same for transformers)."""
    ours, theirs = work_folder / "runs", work_folder / "exported"
    words = texts()
    size = {"layers": layers, "hidden_size": width, "heads": width // 64, "max_length": LENGTH}
    for name, shape in (BESIDE | OTHERS).items():
        if not (ours / name).exists():
            _write(ours / name, shape, size, vocabulary, words)
        if name in BESIDE and not (theirs / name).exists():
            api.export(ours / name, theirs / name)
    return ours, theirs


def _write(out: Path, shape: dict[str, Any], size: dict[str, int], vocabulary: int, words: list[str]) -> None:
    family, task = shape["family"], shape.get("task")
    image_settings = {"image_size": shape["image_size"]} if "image_size" in shape else {}
    recipe_settings: dict[str, Any] = {"model": {"family": family, **size, **image_settings}}
    recipe_settings["tokenizer"] = {"kind": "bpe" if family == "gpt2" else "wordpiece", "vocab_size": vocabulary}
    if task is None:
        recipe_settings["objective"] = [{"name": shape["objective"]}]
    else:
        recipe_settings |= {"task": {"max_length": LENGTH, **task}, "data": {"train": "none.tsv"}}
    recipe = resolve_recipe(out.name, recipe_settings)
    tokenizer = train_tokenizer(recipe.tokenizer, words)
    if task is not None and family == "gpt2":
        tokenizer = TASKS[task["name"]].extend_tokenizer(recipe.task, tokenizer)
    torch.manual_seed(0)
    learner = build_learner(recipe, tokenizer)
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    write_run(out, recipe, tokenizer, {key: value.detach() for key, value in state.items()}, {})
