"""Llama's config entries and weight map for transformers: the Transformer family with causal attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from meristem.config.errors import MeristemError
from meristem.interop.families._causal import CausalModelType
from meristem.interop.model_type import SCORES_HEAD, SPAN_HEAD, ConfigEntry, HeadMapping
from meristem.interop.weight_map import CONCAT_GQA, WeightRule, weight_table

LAYERS = ("backbone.stack.layers.{}", "model.layers.{}")
LAYER_RULES = (
    *weight_table(
        *LAYERS, {"attention.project": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")}, CONCAT_GQA
    ),
    *weight_table(
        *LAYERS,
        {
            "attention.output": "self_attn.o_proj",
            "attention_norm": "input_layernorm",
            "feed_forward.widen": ("mlp.gate_proj", "mlp.up_proj"),
            "feed_forward.narrow": "mlp.down_proj",
            "feed_forward_norm": "post_attention_layernorm",
        },
    ),
)

SHAPE_ENTRIES = (
    ConfigEntry("layers", "num_hidden_layers", 32),
    ConfigEntry("hidden_size", "hidden_size", 4096),
    ConfigEntry("heads", "num_attention_heads", 32),
    ConfigEntry("kv_heads", "num_key_value_heads", None),
    ConfigEntry("ffn_size", "intermediate_size", 11008),
    ConfigEntry("max_length", "max_position_embeddings", 2048),
    ConfigEntry("dropout", "attention_dropout", 0.0),
    ConfigEntry("norm_epsilon", "rms_norm_eps", 1e-6),
    ConfigEntry("rotary_base", ("rope_parameters.rope_theta", "rope_theta"), 10_000.0),
)


class LlamaModelType(CausalModelType):
    """RMSNorm before each sublayer, rotary positions, gated feed-forward."""

    name = "llama"
    family = "modern"
    config_entries: ClassVar[tuple[ConfigEntry, ...]] = (
        *SHAPE_ENTRIES,
        ConfigEntry("bias", ("attention_bias", "mlp_bias"), False),
        ConfigEntry("activation", "hidden_act", "silu", {"swiglu": "silu", "geglu": "gelu_new"}),
        ConfigEntry("tie_embeddings", "tie_word_embeddings", False),
    )
    fixed_settings = {"norm": "rms", "norm_position": "pre", "position_encoding": "rotary"}
    required_config = {"rope_parameters.rope_type": "default", "rope_parameters.partial_rotary_factor": 1.0}
    attention_mode = "causal"
    base_prefix = "model."
    body_rules = (
        *LAYER_RULES,
        WeightRule("backbone.stack.final_norm", "model.norm"),
        WeightRule("backbone.embed.tokens", "model.embed_tokens"),
    )
    heads = {
        "clm": HeadMapping("vocabulary", (WeightRule("heads.clm", "lm_head"),)),  # a separate tensor if not tied
        "classification": SCORES_HEAD,
        "tagging": HeadMapping("tags", (WeightRule("heads.tagging", "score"),), classes=0),
        "span": SPAN_HEAD,
    }
    architectures = {
        "LlamaModel": (),
        "LlamaForCausalLM": ("clm",),
        "LlamaForSequenceClassification": ("classification",),
        "LlamaForTokenClassification": ("tagging",),
        "LlamaForQuestionAnswering": ("span",),
    }
    question_answering_prefix: ClassVar[str] = "transformer."
    """Prefix of the base model's tensor names in the question-answering class."""
    tied_weights = {"lm_head.weight": "model.embed_tokens.weight"}
    ignored_patterns = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    default_special_ids = (1, 2)

    @classmethod
    def weight_rules(cls, heads: Iterable[str]) -> tuple[WeightRule, ...]:
        """Only the question-answering class has another prefix."""
        heads = tuple(heads)
        rules = super().weight_rules(heads)
        if "span" not in heads:
            return rules
        return tuple(rule.with_prefix(cls.base_prefix, cls.question_answering_prefix) for rule in rules)

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """All biases or none, head_dim = hidden_size / heads, and no RoPE scaling."""
        if bool(config.get("mlp_bias")) != bool(settings.get("bias")):
            raise MeristemError("config.json: attention_bias and mlp_bias differ; only both or none are supported")
        head_dim = settings["hidden_size"] // settings["heads"]
        if (size := config.get("head_dim")) not in (None, head_dim):
            raise MeristemError(f"config.json: head_dim={size}: only hidden_size / heads = {head_dim} is supported")
        if rope_scaling := config.get("rope_scaling"):  # the key before transformers 5
            raise MeristemError(f"config.json: rope_scaling={rope_scaling}: RoPE scaling is not supported")
        return settings
