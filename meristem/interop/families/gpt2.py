"""GPT-2's config entries and weight map for transformers: Conv1D weights are transposed."""

from __future__ import annotations

from meristem.interop.families._causal import CHOICE_HEAD, CausalModelType
from meristem.interop.model_type import ACTIVATIONS, SCORES_HEAD, SPAN_HEAD, TAGGING_HEAD, ConfigEntry, HeadMapping
from meristem.interop.weight_map import TRANSPOSE, WeightRule, weight_table

LAYER_RULES = (
    *weight_table(
        "backbone.stack.layers.{}",
        "transformer.h.{}",
        {
            "attention.project": "attn.c_attn",
            "attention.output": "attn.c_proj",
            "feed_forward.widen": "mlp.c_fc",
            "feed_forward.narrow": "mlp.c_proj",
        },
        TRANSPOSE,
    ),
    *weight_table(
        "backbone.stack.layers.{}", "transformer.h.{}", {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}
    ),
)


class GPT2ModelType(CausalModelType):
    """Pre-norm, learned positions, tied vocabulary head."""

    name = "gpt2"
    family = "gpt2"
    config_entries = (
        ConfigEntry("layers", "n_layer", 12),
        ConfigEntry("hidden_size", "n_embd", 768),
        ConfigEntry("heads", "n_head", 12),
        ConfigEntry("ffn_size", "n_inner", None),
        ConfigEntry("max_length", "n_positions", 1024),
        ConfigEntry("activation", "activation_function", "gelu_new", ACTIVATIONS),
        ConfigEntry("dropout", ("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
        ConfigEntry("norm_epsilon", "layer_norm_epsilon", 1e-5),
    )
    fixed_settings = {"norm_position": "pre", "position_encoding": "learned"}
    required_config = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    base_prefix = "transformer."
    body_rules = (
        *LAYER_RULES,
        WeightRule("backbone.stack.final_norm", "transformer.ln_f"),
        WeightRule("backbone.embed.tokens", "transformer.wte"),
        WeightRule("backbone.embed.positions", "transformer.wpe"),
    )
    heads = {
        "clm": HeadMapping("vocabulary", ()),
        "choice": CHOICE_HEAD,
        "classification": SCORES_HEAD,
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
    }
    architectures = {
        "GPT2Model": (),
        "GPT2LMHeadModel": ("clm",),
        "GPT2DoubleHeadsModel": ("clm", "choice"),
        "GPT2ForSequenceClassification": ("classification",),
        "GPT2ForTokenClassification": ("tagging",),
        "GPT2ForQuestionAnswering": ("span",),
    }
    tied_weights = {"lm_head.weight": "transformer.wte.weight"}
    ignored_patterns = (r"transformer\.h\.\d+\.attn\.(masked_)?bias",)
    default_special_ids = (50256, 50256)
