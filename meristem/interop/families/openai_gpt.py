"""GPT's config entries and weight map for transformers: GPT-2's layer names, other embedding names."""

from __future__ import annotations

from meristem.interop.families._causal import CHOICE_HEAD, CausalModelType
from meristem.interop.families.gpt2 import LAYER_RULES
from meristem.interop.model_type import SCORES_HEAD, ConfigEntry, HeadMapping
from meristem.interop.weight_map import WeightRule


class OpenAIGPTModelType(CausalModelType):
    """Post-norm, no final norm, feed-forward size always four times the hidden size."""

    name = "openai-gpt"
    family = "gpt"
    config_entries = (
        ConfigEntry("layers", "n_layer", 12),
        ConfigEntry("hidden_size", "n_embd", 768),
        ConfigEntry("heads", "n_head", 12),
        ConfigEntry("max_length", "n_positions", 512),
        # its gelu is the tanh approximation
        ConfigEntry("activation", "afn", "gelu", {"gelu_tanh": "gelu", "relu": "relu"}),
        ConfigEntry("dropout", ("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
        ConfigEntry("norm_epsilon", "layer_norm_epsilon", 1e-5),
    )
    fixed_settings = {"norm_position": "post", "position_encoding": "learned"}
    required_config = {"tie_word_embeddings": True}
    base_prefix = "transformer."
    body_rules = (
        *LAYER_RULES,
        WeightRule("backbone.embed.tokens", "transformer.tokens_embed"),
        WeightRule("backbone.embed.positions", "transformer.positions_embed"),
    )
    heads = {"clm": HeadMapping("vocabulary", ()), "choice": CHOICE_HEAD, "classification": SCORES_HEAD}
    architectures = {
        "OpenAIGPTModel": (),
        "OpenAIGPTLMHeadModel": ("clm",),
        "OpenAIGPTDoubleHeadsModel": ("clm", "choice"),
        "OpenAIGPTForSequenceClassification": ("classification",),
    }
    tied_weights = {"lm_head.weight": "transformer.tokens_embed.weight"}
    ignored_patterns = (r"transformer\.h\.\d+\.attn\.bias", r"transformer\.position_ids")
    default_special_ids = (None, None)
