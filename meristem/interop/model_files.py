"""The files of one exported transformers model: config.json, tokenizer and weights, in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.checkpoint import disk, tensors
from meristem.checkpoint.load_run import LoadedRun
from meristem.generation.generation_inputs import input_template
from meristem.interop import tokenizer_conversion
from meristem.interop.model_type import ModelType
from meristem.interop.task_export import TaskExport
from meristem.interop.weight_map import export_weights, match_weights
from meristem.interop.weights_folder import SAFETENSORS_FILE
from meristem.utils import untrusted_files

PADDED_HEADS = frozenset({"classification", "tagging", "span", "choice"})
"""Heads whose classes read batches of several texts, which need a padding token."""


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """One transformers model, ready to be written to a folder."""

    architecture: str
    texts: Mapping[str, str]
    """File name → content: config.json and the tokenizer's files."""
    weights: Mapping[str, Tensor]
    notes: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(tensor.numel() for tensor in self.weights.values())


def build_model_files(
    model_type: type[ModelType],
    task_export: TaskExport,
    heads: tuple[str, ...],
    architecture: str,
    extra_config: Mapping[str, str] | None = None,
) -> ModelFiles:
    """Config with `extra_config` keys, tokenizer and weights of the class with these heads."""
    loaded, model = task_export.loaded, task_export.loaded.learner.model
    settings = model_type.exported_settings(loaded.recipe.model, model)
    excluded = tuple(f"heads.{name}." for name in model.heads if name not in heads) + model_type.excluded_prefixes
    names = [name for name, _ in model.named_parameters() if not name.startswith(excluded)]
    tensors = export_weights(
        match_weights(model_type.weight_rules(heads), names, settings), model.state_dict(), settings
    )
    config = build_config(model_type, loaded, architecture, heads) | dict(extra_config or {})
    notes = model_type.finalize_export(config, tensors, loaded)
    configs = {"config.json": config, "generation_config.json": model_type.generation_config(loaded.tokenizer, config)}
    texts = {
        **{
            name: untrusted_files.to_json(content, indent=2, ascii_only=True) + "\n"
            for name, content in configs.items()
            if content is not None
        },
        **tokenizer_conversion.tokenizer_files(
            loaded.tokenizer,
            model_type,
            task_export.max_length or loaded.recipe.model.max_length,
            # imported and not trained since: the published tokenizer is exported as it came
            template=None if "new" in loaded.state else input_template(model, loaded.tokenizer),
            pad_id=config["pad_token_id"],
            padding_side=model_type.run_padding_side(loaded),
        ),
    }
    return ModelFiles(architecture=architecture, texts=texts, weights=tensors, notes=tuple(notes))


def build_config(
    model_type: type[ModelType], loaded: LoadedRun, architecture: str, heads: tuple[str, ...]
) -> dict[str, Any]:
    """config.json: architecture, vocabulary and labels."""
    tokenizer, recipe, model = loaded.tokenizer, loaded.recipe, loaded.learner.model
    vocab_rows = len(model.backbone.embedding().weight)
    config = {
        "architectures": [architecture],
        "tie_word_embeddings": True,
        **model_type.config_from_settings(model_type.exported_settings(recipe.model, model)),
        "vocab_size": vocab_rows,
        "dtype": "float32",
        "pad_token_id": tokenizer.end if tokenizer.pad is None and PADDED_HEADS & set(heads) else tokenizer.pad,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
    }
    for head in (recipe.heads[name] for name in heads if name in recipe.heads and recipe.heads[name].labels):
        config["id2label"] = {str(number): label for number, label in enumerate(head.labels)}
        config["label2id"] = {label: number for number, label in enumerate(head.labels)}
        config["problem_type"] = head.problem
    return config


def write_model(folder: Path, model: ModelFiles, extra_files: Mapping[str, str] | None = None) -> None:
    """Write the files of one model, and extra files beside them."""
    folder.mkdir(exist_ok=True)
    for name, text in {**model.texts, **(extra_files or {})}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        disk.write_file(folder / name, [text.encode()])
    disk.write_file(folder / SAFETENSORS_FILE, tensors.encode_safetensors(model.weights, {"format": "pt"}))
