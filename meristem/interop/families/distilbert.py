"""DistilBERT's config entries and weight map for transformers: BERT without segments, with its own tensor names."""

from __future__ import annotations

from meristem.interop.families._encoder import SPAN_HEAD, TAGGING_HEAD, EncoderModelType, pooled_head, vocabulary_head
from meristem.interop.model_type import ACTIVATIONS, ConfigEntry
from meristem.interop.weight_map import CONCAT, WeightRule

OUR_LAYER, THEIR_LAYER = "backbone.stack.layers.{}", "distilbert.transformer.layer.{}"
LAYER_RULES = (
    WeightRule(
        f"{OUR_LAYER}.attention.project", tuple(f"{THEIR_LAYER}.attention.{part}_lin" for part in "qkv"), CONCAT
    ),
    WeightRule(f"{OUR_LAYER}.attention.output", f"{THEIR_LAYER}.attention.out_lin"),
    WeightRule(f"{OUR_LAYER}.attention_norm", f"{THEIR_LAYER}.sa_layer_norm"),
    WeightRule(f"{OUR_LAYER}.feed_forward.widen", f"{THEIR_LAYER}.ffn.lin1"),
    WeightRule(f"{OUR_LAYER}.feed_forward.narrow", f"{THEIR_LAYER}.ffn.lin2"),
    WeightRule(f"{OUR_LAYER}.feed_forward_norm", f"{THEIR_LAYER}.output_layer_norm"),
)


class DistilBertModelType(EncoderModelType):
    """Post-norm, learned positions, ReLU in the classification head."""

    name = "distilbert"
    family = "bert"
    config_entries = (
        ConfigEntry("layers", "n_layers", 6),
        ConfigEntry("hidden_size", "dim", 768),
        ConfigEntry("heads", "n_heads", 12),
        ConfigEntry("ffn_size", "hidden_dim", 3072),
        ConfigEntry("max_length", "max_position_embeddings", 512),
        ConfigEntry("activation", "activation", "gelu", ACTIVATIONS),
        ConfigEntry("dropout", ("dropout", "attention_dropout"), 0.1),
    )
    fixed_settings = {
        "norm_position": "post",
        "position_encoding": "learned",
        "segments": 0,
        "norm_epsilon": 1e-12,
        "pooler_activation": "relu",
    }
    required_config = {"sinusoidal_pos_embds": False}
    base_prefix = "distilbert."
    body_rules = (
        *LAYER_RULES,
        WeightRule("backbone.embed.tokens", "distilbert.embeddings.word_embeddings"),
        WeightRule("backbone.embed.positions", "distilbert.embeddings.position_embeddings"),
        WeightRule("backbone.embed.norm", "distilbert.embeddings.LayerNorm"),
    )
    heads = {
        "mlm": vocabulary_head("mlm", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "classification": pooled_head("classification", "pre_classifier", "classifier"),
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
        "choice": pooled_head("choice", "pre_classifier", "classifier", classes=1),
    }
    architectures = {
        "DistilBertModel": (),
        "DistilBertForMaskedLM": ("mlm",),
        "DistilBertForSequenceClassification": ("classification",),
        "DistilBertForTokenClassification": ("tagging",),
        "DistilBertForQuestionAnswering": ("span",),
        "DistilBertForMultipleChoice": ("choice",),
    }
    objective_heads = {"mlm": ("mlm",)}
    tied_weights = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    ignored_patterns = (r"distilbert\.embeddings\.position_ids",)
