"""Mistral's config entries and weight map for transformers: Llama with sliding-window attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meristem.interop.families.llama import SHAPE_ENTRIES, LlamaModelType
from meristem.interop.model_type import ConfigEntry

DEFAULTS = {"kv_heads": 8, "ffn_size": 14336, "max_length": 4096 * 32}


class MistralModelType(LlamaModelType):
    """Llama without biases, with a sliding window in every layer."""

    name = "mistral"
    config_entries = (
        *(replace(entry, default=DEFAULTS.get(entry.ours, entry.default)) for entry in SHAPE_ENTRIES),
        ConfigEntry("activation", "hidden_act", "silu", {"swiglu": "silu", "geglu": "gelu_new"}),
        ConfigEntry("attention_window", "sliding_window", 4096),
        ConfigEntry("tie_embeddings", "tie_word_embeddings", False),
    )
    fixed_settings = {**LlamaModelType.fixed_settings, "bias": False}
    architectures = {name.replace("Llama", "Mistral"): heads for name, heads in LlamaModelType.architectures.items()}
    question_answering_prefix = LlamaModelType.base_prefix

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """A window of null means none; only a missing key means the default."""
        if "sliding_window" in config and config["sliding_window"] is None:
            settings["attention_window"] = None
        return super().adjust_settings(settings, config)
