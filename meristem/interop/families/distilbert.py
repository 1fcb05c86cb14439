"""DistilBERT's config entries and weight map for transformers: BERT without segments, with its own tensor names."""

from __future__ import annotations

from meristem.interop.families import _encoder as encoder
from meristem.interop.model_type import ACTIVATIONS, SPAN_HEAD, TAGGING_HEAD, ConfigEntry
from meristem.interop.weight_map import WeightNames, weight_table

LAYER_NAMES: WeightNames = {
    "attention.project": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed_forward.widen": "ffn.lin1",
    "feed_forward.narrow": "ffn.lin2",
    "feed_forward_norm": "output_layer_norm",
}
EMBEDDING_NAMES = {"tokens": "word_embeddings", "positions": "position_embeddings", "norm": "LayerNorm"}


class DistilBertModelType(encoder.EncoderModelType):
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
        *weight_table("backbone.stack.layers.{}", "distilbert.transformer.layer.{}", LAYER_NAMES),
        *weight_table("backbone.embed", "distilbert.embeddings", EMBEDDING_NAMES),
    )
    heads = {
        "mlm": encoder.vocabulary_head("mlm", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "classification": encoder.pooled_head("classification", "pre_classifier", "classifier"),
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
        "choice": encoder.pooled_head("choice", "pre_classifier", "classifier", classes=1),
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
