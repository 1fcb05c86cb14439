"""T5's config entries and weight map for transformers: 1.0, and 1.1 with gated feed-forward layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from meristem.blocks.transformer.feed_forward import GATED_ACTIVATIONS
from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.interop.families._encoder_decoder import CLASSIFICATION_HEAD, EncoderDecoderModelType, tied_embeddings
from meristem.interop.model_type import SPAN_HEAD, ConfigEntry, HeadMapping
from meristem.interop.weight_map import CONCAT, WeightNames, WeightRule, weight_table
from meristem.interop.weights_folder import FolderWeights
from meristem.models.transformer import TransformerSettings

ACTIVATION_NAMES = {
    (False, "relu"): "relu",
    (False, "relu6"): "relu6",
    (False, "gelu"): "gelu",
    (False, "gelu_new"): "gelu_tanh",
    (True, "gelu_new"): "geglu",
    (True, "silu"): "swiglu",
}
SHORT_NAMES = {"gated-gelu_new": "gated-gelu"}
"""transformers' short name of one activation."""


def _side_rules(side: str, feed_forward_index: int) -> tuple[WeightRule, ...]:
    """Weight rules of both the encoder and the decoder; the feed-forward layer is the last of a block."""
    ours, theirs = f"backbone.{side}.layers.{{}}", f"transformer.{side}.block.{{}}.layer"
    feed_forward = f"{feed_forward_index}.DenseReluDense"
    names: WeightNames = {
        "attention.project": ("0.SelfAttention.q", "0.SelfAttention.k", "0.SelfAttention.v"),
        "attention.output": "0.SelfAttention.o",
        "attention_norm": "0.layer_norm",
        "feed_forward.widen": f"{feed_forward}.wi",
        "feed_forward.narrow": f"{feed_forward}.wo",
        "feed_forward_norm": f"{feed_forward_index}.layer_norm",
    }
    gated_names = (f"{theirs}.{feed_forward}.wi_0", f"{theirs}.{feed_forward}.wi_1")
    relative_bias = f"transformer.{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return (
        WeightRule(f"{ours}.feed_forward.widen", gated_names, CONCAT, ("activation", tuple(GATED_ACTIVATIONS))),
        *weight_table(ours, theirs, names),
        WeightRule(f"backbone.{side}.relative.table", relative_bias),
        WeightRule(f"backbone.{side}.final_norm", f"transformer.{side}.final_layer_norm"),
    )


CROSS_ATTENTION_NAMES: WeightNames = {
    "cross.query": "1.EncDecAttention.q",
    "cross.source": ("1.EncDecAttention.k", "1.EncDecAttention.v"),
    "cross.output": "1.EncDecAttention.o",
    "cross_norm": "1.layer_norm",
}
EMBEDDING_NAMES = tuple(f"{part}.weight" for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"))


class T5ModelType(EncoderDecoderModelType):
    """Pre-norm with RMSNorm, no biases, relative position biases, unscaled attention scores."""

    name = "t5"
    config_entries = (
        ConfigEntry("layers", "num_layers", 6),
        ConfigEntry("hidden_size", "d_model", 512),
        ConfigEntry("heads", "num_heads", 8),
        ConfigEntry("ffn_size", "d_ff", 2048),
        ConfigEntry("max_length", "n_positions", 512),
        ConfigEntry("dropout", "dropout_rate", 0.1),
        ConfigEntry("norm_epsilon", "layer_norm_epsilon", 1e-6),
        ConfigEntry("relative_buckets", "relative_attention_num_buckets", 32),
        ConfigEntry("relative_max_distance", "relative_attention_max_distance", 128),
        ConfigEntry("tie_embeddings", "tie_word_embeddings", True),
        ConfigEntry("scale_output", "scale_decoder_outputs", True),
    )
    fixed_settings = {
        "norm": "rms",
        "norm_position": "pre",
        "position_encoding": "none",
        "bias": False,
        "scale_embeddings": False,
        "scale_attention": False,
    }
    required_config = {"is_decoder": False}
    base_prefix = "transformer."
    body_rules = (
        *_side_rules("encoder", 1),
        *_side_rules("decoder", 2),
        *weight_table("backbone.decoder.layers.{}", "transformer.decoder.block.{}.layer", CROSS_ATTENTION_NAMES),
        WeightRule("backbone.tokens", "transformer.shared"),
    )
    heads = {
        "seq2seq": HeadMapping("vocabulary", (WeightRule("heads.seq2seq.weight", "lm_head.weight"),)),
        "classification": CLASSIFICATION_HEAD,
        "span": SPAN_HEAD,
    }
    architectures = {
        "T5Model": (),
        "T5ForConditionalGeneration": ("seq2seq",),
        "T5ForSequenceClassification": ("classification",),
        "T5ForQuestionAnswering": ("span",),
    }
    tied_weights = tied_embeddings("transformer.")
    ignored_patterns = (
        r"(transformer\.)?decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    )
    single_template, pair_template = "A end", "A end B end"
    special_token_roles = {"eos_token": "end"}
    default_token_ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}

    @classmethod
    def complete_config(cls, config: Mapping[str, Any], weights: FolderWeights) -> Mapping[str, Any]:
        """Whether the output embedding is tied is inferred from the weights: transformers 5 never writes it.

        In older files an untied output means that states are not scaled before it.
        """
        completed = dict(super().complete_config(config, weights))
        completed.setdefault("scale_decoder_outputs", completed.get("tie_word_embeddings") is not False)
        embedding_name = next(
            (
                candidate
                for name in EMBEDDING_NAMES
                for candidate in (name, cls.base_prefix + name)
                if candidate in weights
            ),
            None,
        )
        completed["tie_word_embeddings"] = True
        if embedding_name is not None and "lm_head.weight" in weights:
            embedding, lm_head = weights[embedding_name], weights["lm_head.weight"]
            completed["tie_word_embeddings"] = (embedding.shape, embedding.dtype) == (
                lm_head.shape,
                lm_head.dtype,
            ) and torch.equal(embedding, lm_head)
        return completed

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """The decoder has as many layers as the encoder by default; two keys may refine the gated activation."""
        head_dim, name = config.get("d_kv") or 64, str(config.get("feed_forward_proj") or "relu")
        heads, width = settings["heads"], settings["hidden_size"]
        if not isinstance(head_dim, int) or not isinstance(heads, int) or head_dim * heads != width:
            raise MeristemError(
                f"config.json: d_kv={head_dim} × num_heads={heads} is not d_model={width}: "
                f"they must be equal in the {cls.family} family"
            )
        full_name = next((long_name for long_name, short_name in SHORT_NAMES.items() if short_name == name), name)
        gated = bool(config.get("is_gated_act", full_name.startswith("gated-")))
        inner = str(config.get("dense_act_fn") or full_name.removeprefix("gated-"))
        if (gated, inner) not in ACTIVATION_NAMES:
            raise MeristemError(f"config.json: feed_forward_proj={name!r} ({inner}) is not supported")
        layers = config.get("num_decoder_layers") or settings["layers"]
        return {**settings, "activation": ACTIVATION_NAMES[gated, inner], "decoder_layers": layers}

    @classmethod
    def config_from_settings(cls, settings: Any) -> dict[str, Any]:
        """Architecture, heads and gated activation in their terms."""
        gated, inner = next(key for key, ours in ACTIVATION_NAMES.items() if ours == settings.activation)
        name = f"gated-{inner}" if gated else inner
        return {
            **super().config_from_settings(settings),
            "d_kv": settings.hidden_size // settings.heads,
            "num_decoder_layers": settings.decoder_layers or settings.layers,
            "feed_forward_proj": SHORT_NAMES.get(name, name),
            "is_gated_act": gated,
            "dense_act_fn": inner,
        }

    @classmethod
    def objective_recipe(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Span corruption with sentinels."""
        return {**super().objective_recipe(name, config), "kind": "spans"}

    @classmethod
    def weight_rules(cls, heads: Iterable[str]) -> tuple[WeightRule, ...]:
        """Only the sequence classification class has a prefix before the base model's names."""
        rules = super().weight_rules(heads)
        return rules if "classification" in heads else tuple(rule.with_prefix(cls.base_prefix, "") for rule in rules)

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Marks an untied output as such, although transformers 5 warns about it in any case."""
        notes = super().finalize_export(config, tensors, loaded)
        settings = loaded.recipe.model
        assert isinstance(settings, TransformerSettings)
        config["tie_word_embeddings"] = settings.tie_embeddings
        if not settings.tie_embeddings:
            notes.append(
                "lm_head is not tied: transformers 5 warns about that, as for every T5 1.1, and uses it correctly"
            )
        return notes
