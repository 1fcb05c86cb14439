"""Mamba's config entries and weight map for transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.interop.families._causal import CausalModelType
from meristem.interop.model_type import ConfigEntry, HeadMapping
from meristem.interop.weight_map import Reshape, WeightRule

MIXER = "backbone.layers.{}.mixer"
"""The prefix of a mixer's parameters, here and there."""
LAYER_RULES = (
    WeightRule("backbone.layers.{}.norm", "backbone.layers.{}.norm"),
    WeightRule(f"{MIXER}.in_projection", f"{MIXER}.in_proj"),
    WeightRule(
        f"{MIXER}.convolution_weight",
        f"{MIXER}.conv1d.weight",
        Reshape(("inner_size", 1, "kernel_size"), ("inner_size", "kernel_size")),
    ),
    WeightRule(f"{MIXER}.convolution_bias", f"{MIXER}.conv1d.bias"),
    WeightRule(f"{MIXER}.selection", f"{MIXER}.x_proj"),
    WeightRule(f"{MIXER}.time_step", f"{MIXER}.dt_proj"),
    WeightRule(f"{MIXER}.log_decay", f"{MIXER}.A_log", Reshape(("inner_size", "state_size"), (-1,))),
    WeightRule(f"{MIXER}.skip", f"{MIXER}.D"),
    WeightRule(f"{MIXER}.out_projection", f"{MIXER}.out_proj"),
)


class MambaModelType(CausalModelType):
    """Selective state-space layers, tied vocabulary head."""

    name = "mamba"
    family = "mamba"
    config_entries = (
        ConfigEntry("layers", "num_hidden_layers", 32),
        ConfigEntry("hidden_size", "hidden_size", 768),
        ConfigEntry("expand", "expand", 2),
        ConfigEntry("state_size", "state_size", 16),
        ConfigEntry("kernel_size", "conv_kernel", 4),
        ConfigEntry("time_step_rank", "time_step_rank", "auto"),
        ConfigEntry("time_step_min", "time_step_min", 0.001),
        ConfigEntry("time_step_max", "time_step_max", 0.1),
        ConfigEntry("norm_epsilon", "layer_norm_epsilon", 1e-5),
    )
    required_config = {"use_bias": False, "use_conv_bias": True, "hidden_act": "silu", "tie_word_embeddings": True}
    training_settings = frozenset({"max_length", "carry_state", "dropout"})
    base_prefix = "backbone."
    body_rules = (
        *LAYER_RULES,
        WeightRule("backbone.final_norm", "backbone.norm_f"),
        WeightRule("backbone.tokens", "backbone.embeddings"),
    )
    heads = {"clm": HeadMapping("vocabulary", ())}
    architectures = {"MambaModel": (), "MambaForCausalLM": ("clm",)}
    tied_weights = {"lm_head.weight": "backbone.embeddings.weight"}
    default_special_ids = (0, 0)

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """The automatic rank is the default here too."""
        return settings | {"time_step_rank": None} if settings["time_step_rank"] == "auto" else settings
