"""Runs for the measurements of the server: random weights, the same in our folders and theirs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from meristem import api
from meristem.interop.importing import whole_state, write_run
from meristem.learning.assemble import learner_of
from meristem.recipe import resolve
from meristem.samples import pydocs
from meristem.tokenizers.train import train

LABELS = {"labels": ("bad", "good"), "problem": "single", "way": "bidirectional", "length": 128}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"model": {"family": "gpt2"}, "objective": [{"name": "clm"}], "tokenizer": {"kind": "bpe"}},
    "bert": {"model": {"family": "bert"}, "objective": [{"name": "mlm"}], "tokenizer": {"kind": "wordpiece"}},
    "reviews": {"model": {"family": "bert"}, "task": {"name": "classification", **LABELS},
                "data": {"train": "none.tsv"}, "tokenizer": {"kind": "wordpiece"}},
}  # fmt: skip


def texts() -> list[str]:
    """Prose that exists on every machine: what Python's own library says of itself."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return [text for path in files for text in pydocs.prose_of(path)]


def make(place: Path, *, layers: int, width: int, vocabulary: int) -> tuple[Path, Path]:
    """Folders of runs, and of the same for transformers."""
    ours, theirs = place / "runs", place / "exported"
    words = texts()
    for name, shape in SHAPES.items():
        if (theirs / name).exists():
            continue
        size = {"layers": layers, "width": width, "heads": width // 64, "length": 128}
        told = {**shape, "model": {**shape["model"], **size}, "tokenizer": {**shape["tokenizer"], "size": vocabulary}}
        recipe = resolve(name, told)
        tokenizer = train(recipe.tokenizer, words)
        torch.manual_seed(0)
        learner = learner_of(recipe, tokenizer)
        state = whole_state(learner.model, dict(learner.model.named_parameters()))
        write_run(ours / name, recipe, tokenizer, {key: value.detach() for key, value in state.items()}, {})
        api.export(ours / name, theirs / name)
    return ours, theirs
