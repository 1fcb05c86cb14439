"""Initializing the encoder of an encoder-decoder from a pretrained encoder such as BERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Model

SHARED_SETTINGS = (
    *("hidden_size", "layers", "heads", "kv_heads", "activation", "norm", "norm_position", "norm_epsilon"),
    *("position_encoding", "rotary_base", "attention_window", "attention_window_every", "bias", "segments"),
)
"""Model settings that must agree for the encoder to compute the same function."""


def can_init_encoder(source_run: LoadedRun, model: Model) -> bool:
    """Whether another run is an encoder of a different family whose weights fit this model's encoder."""
    backbone, source_backbone = model.backbone, source_run.learner.model.backbone
    is_encoder = "bidirectional" in source_backbone.capabilities and hasattr(source_backbone, "stack")
    return type(backbone) is not type(source_backbone) and bool(backbone.encoder_prefixes) and is_encoder


def encoder_weights(model: Model, source_run: LoadedRun) -> dict[str, Tensor]:
    """Tensors of the other run with its encoder renamed to this model's names; raises if the settings differ."""
    _check_encoder_shape(model.backbone.settings, source_run)
    return _rename_prefixes(source_run.learner.model.state_dict(), model.backbone.encoder_prefixes)


def is_encoder_tensor(name: str, model: Model) -> bool:
    """Whether a tensor of this model belongs to its encoder or is the shared token embedding."""
    return name.startswith(tuple(model.backbone.encoder_prefixes.values()))


def describe_encoder_init(model: Model, source_run: LoadedRun) -> str:
    """Log line on which weights were loaded."""
    return (
        f"the layers of this {source_run.recipe.model.family} are the encoder, and its token embedding is shared by "
        f"encoder, decoder and vocabulary heads of the {model.backbone.settings.family}; the decoder is untrained"
    )


def _rename_prefixes(tensors: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in tensors.items():
        source_prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        renamed[prefixes[source_prefix] + name.removeprefix(source_prefix) if source_prefix else name] = tensor
    return renamed


def _check_encoder_shape(settings: Any, source_run: LoadedRun) -> None:
    source_settings: Any = source_run.learner.model.backbone.settings  # of any encoder with these fields
    if source_settings.embedding_size not in (None, source_settings.hidden_size):
        raise MeristemError(
            f"from: {source_run.run.path} has embeddings of width {source_settings.embedding_size} and layers of width "
            f"{source_settings.hidden_size} (model.embedding_size), and {settings.family} has one width for both; "
            "use a run without model.embedding_size"
        )
    required = {name: getattr(source_settings, name) for name in SHARED_SETTINGS}
    required |= {
        "ffn_size": source_settings.ffn_size or 4 * source_settings.hidden_size,
        "embedding_norm": source_settings.norm_position == "post",
    }
    required |= {"scale_embeddings": False, "relative_buckets": 0, "scale_attention": True}
    if source_settings.position_encoding == "learned":
        required["max_length"] = source_settings.max_length
    current = {name: getattr(settings, name) for name in required} | {
        "ffn_size": settings.ffn_size or 4 * settings.hidden_size
    }
    mismatches = {name: value for name, value in required.items() if current[name] != value}
    if mismatches:
        overrides = " ".join(f"model.{name}={_format_value(value)}" for name, value in mismatches.items())
        current_values = ", ".join(f"{name} is {_format_value(current[name])}" for name in mismatches)
        raise MeristemError(
            f"from: {source_run.run.path} has an encoder with other settings ({current_values} here): set {overrides}"
        )


def _format_value(value: Any) -> str:
    """A value as it is written in an override."""
    return "none" if value is None else str(value).lower()
