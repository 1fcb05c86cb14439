"""BART's config entries and weight map for transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.interop.families._encoder_decoder import CLASSIFICATION_HEAD, EncoderDecoderModelType, tied_embeddings
from meristem.interop.model_type import ACTIVATIONS, SPAN_HEAD, ConfigEntry, HeadMapping
from meristem.interop.weight_map import OffsetRows, WeightNames, WeightRule, weight_table


def _side_rules(side: str, embedding: str) -> tuple[WeightRule, ...]:
    """Weight rules of both the encoder and the decoder."""
    names: WeightNames = {
        "attention.project": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "attention.output": "self_attn.out_proj",
        "attention_norm": "self_attn_layer_norm",
        "feed_forward.widen": "fc1",
        "feed_forward.narrow": "fc2",
        "feed_forward_norm": "final_layer_norm",
    }
    return (
        *weight_table(f"backbone.{side}.layers.{{}}", f"model.{side}.layers.{{}}", names),
        WeightRule(f"backbone.{embedding}.positions", f"model.{side}.embed_positions", OffsetRows(2)),
        WeightRule(f"backbone.{embedding}.norm", f"model.{side}.layernorm_embedding"),
    )


CROSS_ATTENTION_NAMES: WeightNames = {
    "cross.query": "encoder_attn.q_proj",
    "cross.source": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.output": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
}
PAIRED_KEYS = (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim"))


class BartModelType(EncoderDecoderModelType):
    """Post-norm encoder and decoder, learned positions, a norm over the embeddings, one shared embedding table."""

    name = "bart"
    config_entries = (
        ConfigEntry("layers", "encoder_layers", 12),
        ConfigEntry("decoder_layers", "decoder_layers", 12),
        ConfigEntry("hidden_size", "d_model", 1024),
        ConfigEntry("heads", PAIRED_KEYS[0], 16),
        ConfigEntry("ffn_size", PAIRED_KEYS[1], 4096),
        ConfigEntry("max_length", "max_position_embeddings", 1024),
        ConfigEntry("activation", "activation_function", "gelu", ACTIVATIONS),
        ConfigEntry("dropout", ("dropout", "attention_dropout"), 0.1),
        ConfigEntry("scale_embeddings", "scale_embedding", False),
    )
    fixed_settings = {"norm_position": "post", "position_encoding": "learned", "embedding_norm": True}
    required_config = {"tie_word_embeddings": True, "is_decoder": False}
    base_prefix = "model."
    body_rules = (
        *_side_rules("encoder", "enter_source"),
        *_side_rules("decoder", "enter_target"),
        *weight_table("backbone.decoder.layers.{}", "model.decoder.layers.{}", CROSS_ATTENTION_NAMES),
        WeightRule("backbone.tokens", "model.shared"),
    )
    heads = {"seq2seq": HeadMapping("vocabulary", ()), "classification": CLASSIFICATION_HEAD, "span": SPAN_HEAD}
    architectures = {
        "BartModel": (),
        "BartForConditionalGeneration": ("seq2seq",),
        "BartForSequenceClassification": ("classification",),
        "BartForQuestionAnswering": ("span",),
    }
    tied_weights = tied_embeddings("model.")
    zero_patterns = ("final_logits_bias",)
    pair_template = "start A end end B end"
    special_token_roles = {"bos_token": "start", "eos_token": "end", "cls_token": "start", "sep_token": "end"}
    default_token_ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Encoder and decoder must have the same sizes."""
        for entry in cls.config_entries:
            if entry.keys not in PAIRED_KEYS:
                continue
            encoder_value, decoder_value = (
                entry.default if config.get(key) is None else config[key] for key in entry.keys
            )
            if encoder_value != decoder_value:
                difference = f"{entry.keys[0]}={encoder_value} and {entry.keys[1]}={decoder_value}"
                raise MeristemError(
                    f"config.json: {difference}: encoder and decoder must be equal in the {cls.family} family"
                )
        return settings

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Does not force an end token at the maximum length, which transformers would do by default."""
        config["forced_eos_token_id"] = None
        return super().finalize_export(config, tensors, loaded)
