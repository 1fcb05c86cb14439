"""Mistral as transformers keeps it: Llama that looks back no further than a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meristem.interop.families.llama import SHAPE, Llama
from meristem.interop.published import Entry

DEFAULTS = {"groups": 8, "inner": 14336, "length": 4096 * 32}


class Mistral(Llama):
    """Llama's shape without biases, every layer banded."""

    type = "mistral"
    entries = (
        *(replace(entry, default=DEFAULTS.get(entry.ours, entry.default)) for entry in SHAPE),
        Entry("activation", "hidden_act", "silu", {"swiglu": "silu", "geglu": "gelu_new"}),
        Entry("window", "sliding_window", 4096),
        Entry("tied", "tie_word_embeddings", False),
    )
    fixed = {**Llama.fixed, "bias": False}
    architectures = {name.replace("Llama", "Mistral"): heads for name, heads in Llama.architectures.items()}
    answering = Llama.base

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """A window that is null is none; only one that is not named is the usual one."""
        if "sliding_window" in config and config["sliding_window"] is None:
            told["window"] = None
        return super().adjust(told, config)
