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
from meristem.settings import find
from meristem.tokenizers.train import train

LENGTH = 128
LABELS = {"labels": ("bad", "good"), "problem": "single"}
WRITES = {"beams": 2, "max_tokens": 8}
BESIDE: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "objective": "clm"},
    "bert": {"family": "bert", "objective": "mlm"},
    "reviews": {"family": "bert", "task": {"name": "classification", "way": "bidirectional", **LABELS}},
}
"""Those that transformers has too."""
OTHERS: dict[str, dict[str, Any]] = {
    "names": {"family": "bert", "task": {"name": "tagging", "way": "bidirectional", "labels": ("O", "B-x", "I-x")}},
    "squad": {"family": "bert", "task": {"name": "span", "way": "bidirectional"}},
    "choices": {"family": "bert", "task": {"name": "choice", "way": "bidirectional"}},
    "translator": {"family": "transformer", "task": {"name": "translation", "way": "encoder_decoder", **WRITES}},
    "shortener": {"family": "transformer", "task": {"name": "summary", "way": "encoder_decoder", **WRITES}},
    "talker": {"family": "gpt2", "task": {"name": "dialogue", "way": "causal", **WRITES}},
    "captioner": {"family": "captioner", "picture": 64,
                  "task": {"name": "caption", "way": "encoder_decoder", "picture": 64, **WRITES}},
}  # fmt: skip
"""With those above, every route has a run that answers it."""


def texts() -> list[str]:
    """Prose that exists on every machine: what Python's own library says of itself."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return [text for path in files for text in pydocs.prose_of(path)]


def make(place: Path, *, layers: int, width: int, vocabulary: int) -> tuple[Path, Path]:
    """Folders of runs, and of the same for transformers."""
    ours, theirs = place / "runs", place / "exported"
    words = texts()
    size = {"layers": layers, "width": width, "heads": width // 64, "length": LENGTH}
    for name, shape in (BESIDE | OTHERS).items():
        if not (ours / name).exists():
            _write(ours / name, shape, size, vocabulary, words)
        if name in BESIDE and not (theirs / name).exists():
            api.export(ours / name, theirs / name)
    return ours, theirs


def _write(out: Path, shape: dict[str, Any], size: dict[str, int], vocabulary: int, words: list[str]) -> None:
    family, task = shape["family"], shape.get("task")
    seen = {"picture": shape["picture"]} if "picture" in shape else {}
    told: dict[str, Any] = {"model": {"family": family, **size, **seen}}
    told["tokenizer"] = {"kind": "bpe" if family == "gpt2" else "wordpiece", "size": vocabulary}
    if task is None:
        told["objective"] = [{"name": shape["objective"]}]
    else:
        told |= {"task": {"length": LENGTH, **task}, "data": {"train": "none.tsv"}}
    recipe = resolve(out.name, told)
    tokenizer = train(recipe.tokenizer, words)
    if task is not None and family == "gpt2":
        tokenizer = find("tasks", task["name"]).marks(recipe.task, tokenizer)
    torch.manual_seed(0)
    learner = learner_of(recipe, tokenizer)
    state = whole_state(learner.model, dict(learner.model.named_parameters()))
    write_run(out, recipe, tokenizer, {key: value.detach() for key, value in state.items()}, {})
