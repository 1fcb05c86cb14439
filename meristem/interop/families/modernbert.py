"""ModernBERT's config entries and weight map for transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.interop.model_type import ConfigEntry, HeadMapping, ModelType
from meristem.interop.weight_map import WeightNames, WeightRule, weight_table

LAYER_NAMES: WeightNames = {
    "attention.project": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "attention_norm": "attn_norm",
    "feed_forward.widen": "mlp.Wi",
    "feed_forward.narrow": "mlp.Wo",
    "feed_forward_norm": "mlp_norm",
}
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def _transform(head: str) -> tuple[WeightRule, ...]:
    """The transform before the output layer of a head."""
    return (
        WeightRule(f"heads.{head}.transform.dense", "head.dense"),
        WeightRule(f"heads.{head}.transform.norm", "head.norm"),
    )


class ModernBertModelType(ModelType):
    """Pre-norm with a norm of the embeddings, rotary positions, GeGLU, global and local attention."""

    name = "modernbert"
    family = "modernbert"
    config_entries = (
        ConfigEntry("layers", "num_hidden_layers", 22),
        ConfigEntry("hidden_size", "hidden_size", 768),
        ConfigEntry("heads", "num_attention_heads", 12),
        ConfigEntry("ffn_size", "intermediate_size", 1152),
        ConfigEntry("max_length", "max_position_embeddings", 8192),
        ConfigEntry("activation", "hidden_activation", "gelu", {"geglu_erf": "gelu", "geglu": "gelu_new"}),
        ConfigEntry("dropout", ("mlp_dropout", "attention_dropout", "embedding_dropout"), 0.0),
        ConfigEntry("norm_epsilon", "norm_eps", 1e-5),
        ConfigEntry("rotary_base", (f"rope_parameters.{GLOBAL}.rope_theta", "global_rope_theta"), 160_000.0),
        ConfigEntry("local_rotary_base", (f"rope_parameters.{LOCAL}.rope_theta", "local_rope_theta"), 10_000.0),
        ConfigEntry("attention_window", "local_attention", 128),
        ConfigEntry("global_attention_every", "global_attn_every_n_layers", 3),
    )
    fixed_settings = {"norm": "layer", "norm_position": "pre", "position_encoding": "rotary"}
    required_config = {
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "classifier_activation": "gelu",
        "tie_word_embeddings": True,
        f"rope_parameters.{GLOBAL}.rope_type": "default",
        f"rope_parameters.{LOCAL}.rope_type": "default",
    }
    base_prefix = "model."
    body_rules = (
        *weight_table("backbone.stack.layers.{}", "model.layers.{}", LAYER_NAMES),
        WeightRule("backbone.embed.tokens", "model.embeddings.tok_embeddings"),
        WeightRule("backbone.embed.norm", "model.embeddings.norm"),
        WeightRule("backbone.stack.final_norm", "model.final_norm"),
    )
    heads = {
        "mlm": HeadMapping("vocabulary", (*_transform("mlm"), WeightRule("heads.mlm.bias", "decoder.bias"))),
        "classification": HeadMapping(
            "pooled", (*_transform("classification"), WeightRule("heads.classification.score", "classifier")), classes=0
        ),
    }
    architectures = {
        "ModernBertModel": (),
        "ModernBertForMaskedLM": ("mlm",),
        "ModernBertForSequenceClassification": ("classification",),
    }
    objective_heads = {"mlm": ("mlm",)}
    tied_weights = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """The window is a distance here; layers are global or local by their number; a classifier reads [CLS]."""
        layer_types = config.get("layer_types")
        if layer_types is not None:
            settings["global_attention_every"] = _global_every(layer_types, settings["global_attention_every"])
        is_classifier = "ModernBertForSequenceClassification" in config.get("architectures", ())
        if is_classifier and config.get("classifier_pooling", "cls") != "cls":
            raise MeristemError(
                f"config.json: classifier_pooling={config['classifier_pooling']!r}: only a classifier of [CLS] (cls) "
                "is supported"
            )
        return settings | {"attention_window": settings["attention_window"] // 2 + 1}

    @classmethod
    def config_from_settings(cls, settings: Any) -> dict[str, Any]:
        """Both forms of the pattern of layers, and the width of the window; without one, it covers the longest text."""
        window = settings.max_length if settings.attention_window is None else settings.attention_window
        config = super().config_from_settings(settings)
        return config | {
            "local_attention": 2 * (window - 1),
            "layer_types": [GLOBAL if settings.is_global(index) else LOCAL for index in range(settings.layers)],
            "classifier_pooling": "cls",
        }

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Sets [CLS] and [SEP], whose defaults are ids of the published vocabulary."""
        config |= {"cls_token_id": loaded.tokenizer.start, "sep_token_id": loaded.tokenizer.end}
        return []


def _global_every(layer_types: list[str], configured: int) -> int:
    """Every which layer is global, from the first on: as configured if that fits; other patterns are refused."""
    num_layers = len(layer_types)
    first = next((index for index in range(1, num_layers) if layer_types[index] == GLOBAL), num_layers)
    for every in (configured, first):
        if layer_types == [LOCAL if index % every else GLOBAL for index in range(num_layers)]:
            return every
    raise MeristemError(
        f"config.json: layer_types={layer_types}: only global attention in the first and every n-th layer is supported"
    )
