"""BART as transformers keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.families._encoder_decoder import CLASSIFICATION, SPAN, EncoderDecoder, one_table
from meristem.interop.lines import JOINED, After, Line
from meristem.interop.published import ACTIVATIONS, Carried, Entry


def _side(side: str, entrance: str) -> tuple[Line, ...]:
    """What encoder and decoder both have."""
    ours, theirs = f"backbone.{side}.layers.{{}}", f"model.{side}.layers.{{}}"
    own = tuple(f"{theirs}.self_attn.{part}_proj" for part in "qkv")
    return (
        Line(f"{ours}.attention.project", own, JOINED),
        Line(f"{ours}.attention.output", f"{theirs}.self_attn.out_proj"),
        Line(f"{ours}.attention_norm", f"{theirs}.self_attn_layer_norm"),
        Line(f"{ours}.feed_forward.widen", f"{theirs}.fc1"),
        Line(f"{ours}.feed_forward.narrow", f"{theirs}.fc2"),
        Line(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm"),
        Line(f"backbone.{entrance}.positions", f"model.{side}.embed_positions", After(2)),
        Line(f"backbone.{entrance}.norm", f"model.{side}.layernorm_embedding"),
    )


CROSS = (
    Line("backbone.decoder.layers.{}.cross.query", "model.decoder.layers.{}.encoder_attn.q_proj"),
    Line(
        "backbone.decoder.layers.{}.cross.source",
        tuple(f"model.decoder.layers.{{}}.encoder_attn.{part}_proj" for part in "kv"),
        JOINED,
    ),
    Line("backbone.decoder.layers.{}.cross.output", "model.decoder.layers.{}.encoder_attn.out_proj"),
    Line("backbone.decoder.layers.{}.cross_norm", "model.decoder.layers.{}.encoder_attn_layer_norm"),
)
ALIKE = (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim"))


class Bart(EncoderDecoder):
    """Post-norm on both sides, learned positions, a norm over the embeddings, one table of words for all."""

    type = "bart"
    entries = (
        Entry("layers", "encoder_layers", 12),
        Entry("decoder_layers", "decoder_layers", 12),
        Entry("width", "d_model", 1024),
        Entry("heads", ALIKE[0], 16),
        Entry("inner", ALIKE[1], 4096),
        Entry("length", "max_position_embeddings", 1024),
        Entry("activation", "activation_function", "gelu", ACTIVATIONS),
        Entry("dropout", ("dropout", "attention_dropout"), 0.1),
        Entry("scale_embeddings", "scale_embedding", False),
    )
    fixed = {"norm_place": "post", "positions": "learned", "embedding_norm": True}
    demands = {"tie_word_embeddings": True, "is_decoder": False}
    base = "model."
    body = (
        *_side("encoder", "enter_source"),
        *_side("decoder", "enter_target"),
        *CROSS,
        Line("backbone.tokens", "model.shared"),
    )
    heads = {
        "seq2seq": Carried("vocabulary", ()),
        "classification": CLASSIFICATION,
        "span": SPAN,
    }
    architectures = {
        "BartModel": (),
        "BartForConditionalGeneration": ("seq2seq",),
        "BartForSequenceClassification": ("classification",),
        "BartForQuestionAnswering": ("span",),
    }
    ties = one_table("model.")
    zeros = ("final_logits_bias",)
    pair = "start A end end B end"
    marks = {"bos_token": "start", "eos_token": "end", "cls_token": "start", "sep_token": "end"}
    numbers = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Both sides must be as wide."""
        for entry in cls.entries:
            if entry.keys not in ALIKE:
                continue
            here, there = (entry.default if config.get(key) is None else config[key] for key in entry.keys)
            if here != there:
                both = f"{entry.keys[0]}={here} and {entry.keys[1]}={there}"
                raise MeristemError(f"config.json: {both}: encoder and decoder have as many in the {cls.family} family")
        return told

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """A text that reaches its longest is not made to end: their library would force it to."""
        config["forced_eos_token_id"] = None
        return super().finish(config, found, revived)
