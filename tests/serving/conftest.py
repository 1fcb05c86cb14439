"""Tiny runs as training leaves them, and a server over all of them in this very process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("httptools")

from starlette.testclient import TestClient

from meristem.api import LoadedModel, load
from meristem.config.recipe import resolve_recipe
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.tokenizers.train import train_tokenizer

LINES = [f"Ada walked from the old harbour to garden {n}, and it rained on Diego." for n in range(40)]
MODEL = {"layers": 1, "hidden_size": 32, "heads": 2, "max_length": 48}
LABELS = {"labels": ("bad", "good"), "problem_type": "single"}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "objective": "clm", "kind": "bpe"},
    "bert": {"family": "bert", "objective": "mlm"},
    "rnn": {"family": "rnn", "objective": "seq2seq"},
    "reviews": {"family": "bert", "task": {"name": "classification", **LABELS}},
    "pairs": {"family": "bert", "task": {"name": "pair", **LABELS}},
    "names": {"family": "bert", "task": {"name": "tagging", "labels": ("O", "B-person", "I-person", "B-place")}},
    "squad": {"family": "bert", "task": {"name": "span"}},
    "choices": {"family": "bert", "task": {"name": "choice"}},
    "translator": {"family": "transformer", "task": {"name": "translation", "beams": 2, "max_tokens": 8}},
    "shortener": {"family": "transformer", "task": {"name": "summary", "beams": 2, "max_tokens": 8}},
    "talker": {"family": "gpt2", "task": {"name": "dialogue", "beams": 2, "max_tokens": 8}, "kind": "bpe"},
    "captioner": {"family": "captioner", "task": {"name": "caption", "beams": 2, "max_tokens": 8}},
}
READS = {"bert": "bidirectional", "transformer": "encoder_decoder", "captioner": "encoder_decoder", "gpt2": "causal"}


def build_run(out: Path, family: str, *, objective: str = "", task: dict[str, Any] | None = None,
         kind: str = "wordpiece") -> Path:  # fmt: skip
    """A run with weights large enough that answers differ."""
    model = {"family": family, **MODEL}
    if family == "rnn":
        del model["heads"]
    if family == "captioner":
        model |= {"image_size": 16, "patch_size": 8}
    recipe_sections: dict[str, Any] = {"model": model, "tokenizer": {"kind": kind, "vocab_size": 400}}
    if task is None:
        recipe_sections["objective"] = [{"name": objective}]
    else:
        image_settings = {"image_size": 16} if task["name"] == "caption" else {}
        recipe_sections["task"] = {"backbone_mode": READS[family], "max_length": 48, **image_settings, **task}
        recipe_sections["data"] = {"train": "none.tsv"}
    recipe = resolve_recipe(out.name, recipe_sections)
    words = train_tokenizer(recipe.tokenizer, LINES)
    if task is not None and family == "gpt2":
        from meristem.interfaces.task import TASKS

        words = TASKS[task["name"]].extend_tokenizer(recipe.task, words)
    learner = build_learner(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {}).path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name."""
    folder = tmp_path_factory.mktemp("served")
    return {name: build_run(folder / name, **shape) for name, shape in SHAPES.items()}


@pytest.fixture(scope="session")
def loaded(runs: dict[str, Path]) -> dict[str, LoadedModel]:
    """The same runs from Python."""
    return {name: load(path) for name, path in runs.items()}


@pytest.fixture(scope="session")
def hub(runs: dict[str, Path]) -> ModelRegistry:
    """All of them, open."""
    return ModelRegistry.open(runs.values())


@pytest.fixture(scope="session")
def client(hub: ModelRegistry) -> Iterator[TestClient]:
    """A client of a server over all runs."""
    app = create_app(hub, ServingSettings.model_validate({}))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client
