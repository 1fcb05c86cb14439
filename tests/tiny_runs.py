"""Tiny trained runs, one per recipe, for tests of what a family can be asked: `tiny_run("xlnet-mini") -> Path`."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import meristem
from meristem.config.recipe import builtin_recipes, parse_recipe_file
from meristem.training import budget

FAMILIES = (
    "bart-mini",
    "bert-mini",
    "captioner-mini",
    "electra-mini",
    "elmo-mini",
    "gpt-mini",
    "gpt2-mini",
    "mamba-mini",
    "modern-mini",
    "modernbert-mini",
    "multitask-mini",
    "rnn-mini",
    "roberta-mini",
    "t5-mini",
    "transformer-mini",
    "transformer-xl-mini",
    "xlnet-mini",
)
"""One recipe of each family."""
SMALL: dict[str, Any] = {
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.max_length": 32,
    "tokenizer.vocab_size": 300,
    "train.minutes": None,
    "train.steps": 6,
    "train.batch_tokens": 192,
    "train.evaluate_tokens": 256,
    "train.optimizer": "adamw",
    "train.threads": 1,
    "corpus.processes": 1,
}
OWN: dict[str, dict[str, Any]] = {
    "elmo": {
        "model.cell_size": 24,
        "model.char_filters": [[1, 8], [2, 8]],
        "model.char_embedding_size": 4,
        "objective.sampled_softmax": 16,
    },
    "captioner": {"model.image_size": 16, "dataset.image_size": 16, "model.patch_size": 8},
    "electra": {"model.embedding_size": 16},
    "multitask": {
        "model.decoder_layers": 1,
        "model.image_size": 16,
        "dataset.image_size": 16,
        "model.patch_size": 8,
        "train.single_task_baselines": False,
        "train.steps": 12,
        "mix": [
            {"objective": ["mlm", "nsp"]},
            {"objective": "clm"},
            {"objective": "denoising"},
            {"objective": "caption", "corpus": "builtin:microworld-pictures?size=24"},
        ],
    },
    "xlnet": {"model.memory_length": 16},
    "transformer_xl": {"model.memory_length": 16},
}
"""What else keeps a family small."""
SOURCES = {"seq2seq": "builtin:microworld-pairs?size=40", "caption": "builtin:microworld-pictures?size=24"}
TEXTS = "builtin:microworld-en?size=60"


@cache
def tiny_run(recipe: str) -> Path:
    """The folder of a run of this recipe, made as small as it gets and trained for a few steps, once per process."""
    recipe_file = parse_recipe_file(builtin_recipes()[recipe])
    family = recipe_file["model"]["family"]
    objective = recipe_file.get("objective", "mlm")
    first = objective[0] if isinstance(objective, list) else objective
    name = first if isinstance(first, str) else first["name"]
    heads = {} if family in ("rnn", "elmo", "mamba") else {"model.heads": 2}
    settings = {**SMALL, **heads, **OWN.get(family, {})}
    if "inner" in recipe_file["model"]:
        settings["model.ffn_size"] = 64
    folder = Path(tempfile.mkdtemp(prefix="tiny-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        result = meristem.pretrain(
            recipe,
            settings,
            source=SOURCES.get(name, TEXTS),
            out=folder / recipe,
            console=Console(quiet=True),
        )
    return result.run


@cache
def tiny_loaded(recipe: str) -> meristem.LoadedModel:
    """The same run, loaded."""
    return meristem.load(tiny_run(recipe))
