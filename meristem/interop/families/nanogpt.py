"""nanoGPT's config entries and weight map: GPT-2 with plain linear layers, the exact GELU and optional biases."""

from __future__ import annotations

from meristem.interop.families._causal import CausalModelType
from meristem.interop.model_type import ConfigEntry, HeadMapping
from meristem.interop.weight_map import WeightRule, weight_table


class NanoGPTModelType(CausalModelType):
    """Imported only: transformers has no such model type."""

    name = "nanogpt"
    family = "gpt2"
    exportable = False
    config_entries = (
        ConfigEntry("layers", "n_layer", 12),
        ConfigEntry("hidden_size", "n_embd", 768),
        ConfigEntry("heads", "n_head", 12),
        ConfigEntry("max_length", "block_size", 1024),
        ConfigEntry("bias", "bias", True),
        ConfigEntry("dropout", "dropout", 0.0),
    )
    fixed_settings = {
        "norm_position": "pre",
        "position_encoding": "learned",
        "activation": "gelu",
        "norm_epsilon": 1e-5,
    }
    base_prefix = "transformer."
    body_rules = (
        *weight_table(
            "backbone.stack.layers.{}",
            "transformer.h.{}",
            {
                "attention.project": "attn.c_attn",
                "attention.output": "attn.c_proj",
                "feed_forward.widen": "mlp.c_fc",
                "feed_forward.narrow": "mlp.c_proj",
                "attention_norm": "ln_1",
                "feed_forward_norm": "ln_2",
            },
        ),
        WeightRule("backbone.stack.final_norm", "transformer.ln_f"),
        WeightRule("backbone.embed.tokens", "transformer.wte"),
        WeightRule("backbone.embed.positions", "transformer.wpe"),
    )
    heads = {"clm": HeadMapping("vocabulary", ())}
    architectures = {"NanoGPT": ("clm",)}
    tied_weights = {"lm_head.weight": "transformer.wte.weight"}
    ignored_patterns = (r"transformer\.h\.\d+\.attn\.bias",)
    default_special_ids = (None, None)
