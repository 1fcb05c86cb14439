"""T5 as transformers keeps it: 1.0, and 1.1 with its gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from meristem.blocks.feed_forward import GATED
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.families._encoder_decoder import CLASSIFICATION, SPAN, EncoderDecoder, one_table
from meristem.interop.folder import Weights
from meristem.interop.lines import JOINED, Line
from meristem.interop.published import Carried, Entry

ACTIVATION = {
    (False, "relu"): "relu",
    (False, "relu6"): "relu6",
    (False, "gelu"): "gelu",
    (False, "gelu_new"): "gelu_tanh",
    (True, "gelu_new"): "geglu",
    (True, "silu"): "swiglu",
}
SHORT = {"gated-gelu_new": "gated-gelu"}
"""Their name of one activation says less than it means."""


def _side(side: str, last: int) -> tuple[Line, ...]:
    """What encoder and decoder both have; the feed-forward part is the last of a block's layers."""
    ours, theirs = f"backbone.{side}.layers.{{}}", f"transformer.{side}.block.{{}}.layer"
    own = tuple(f"{theirs}.0.SelfAttention.{part}" for part in "qkv")
    feed = f"{theirs}.{last}.DenseReluDense"
    first = f"transformer.{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return (
        Line(f"{ours}.attention.project", own, JOINED),
        Line(f"{ours}.attention.output", f"{theirs}.0.SelfAttention.o"),
        Line(f"{ours}.attention_norm", f"{theirs}.0.layer_norm"),
        Line(f"{ours}.feed_forward.widen", (f"{feed}.wi_0", f"{feed}.wi_1"), JOINED, ("activation", tuple(GATED))),
        Line(f"{ours}.feed_forward.widen", f"{feed}.wi"),
        Line(f"{ours}.feed_forward.narrow", f"{feed}.wo"),
        Line(f"{ours}.feed_forward_norm", f"{theirs}.{last}.layer_norm"),
        Line(f"backbone.{side}.relative.table", first),
        Line(f"backbone.{side}.final_norm", f"transformer.{side}.final_layer_norm"),
    )


CROSS = (
    Line("backbone.decoder.layers.{}.cross.query", "transformer.decoder.block.{}.layer.1.EncDecAttention.q"),
    Line(
        "backbone.decoder.layers.{}.cross.source",
        tuple(f"transformer.decoder.block.{{}}.layer.1.EncDecAttention.{part}" for part in "kv"),
        JOINED,
    ),
    Line("backbone.decoder.layers.{}.cross.output", "transformer.decoder.block.{}.layer.1.EncDecAttention.o"),
    Line("backbone.decoder.layers.{}.cross_norm", "transformer.decoder.block.{}.layer.1.layer_norm"),
)
WORDS = tuple(f"{part}.weight" for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"))


class T5(EncoderDecoder):
    """Pre-norm without means and biases, distances as biases on attention, scores that are not scaled."""

    type = "t5"
    entries = (
        Entry("layers", "num_layers", 6),
        Entry("width", "d_model", 512),
        Entry("heads", "num_heads", 8),
        Entry("inner", "d_ff", 2048),
        Entry("length", "n_positions", 512),
        Entry("dropout", "dropout_rate", 0.1),
        Entry("norm_epsilon", "layer_norm_epsilon", 1e-6),
        Entry("relative_buckets", "relative_attention_num_buckets", 32),
        Entry("relative_farthest", "relative_attention_max_distance", 128),
        Entry("tied", "tie_word_embeddings", True),
        Entry("scale_output", "scale_decoder_outputs", True),
    )
    fixed = {
        "norm": "rms",
        "norm_place": "pre",
        "positions": "none",
        "bias": False,
        "scale_embeddings": False,
        "scale_scores": False,
    }
    demands = {"is_decoder": False}
    base = "transformer."
    body = (*_side("encoder", 1), *_side("decoder", 2), *CROSS, Line("backbone.tokens", "transformer.shared"))
    heads = {
        "seq2seq": Carried("vocabulary", (Line("heads.seq2seq.weight", "lm_head.weight"),)),
        "classification": CLASSIFICATION,
        "span": SPAN,
    }
    architectures = {
        "T5Model": (),
        "T5ForConditionalGeneration": ("seq2seq",),
        "T5ForSequenceClassification": ("classification",),
        "T5ForQuestionAnswering": ("span",),
    }
    ties = one_table("transformer.")
    without = (r"(transformer\.)?decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
    frame, pair = "A end", "A end B end"
    marks = {"eos_token": "end"}
    numbers = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}

    @classmethod
    def known(cls, config: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
        """Whether the output has a table of its own is what the weights say: transformers 5 never writes that it has.

        In older files an output of its own is what says that states are not scaled before it.
        """
        told = dict(super().known(config, weights))
        told.setdefault("scale_decoder_outputs", told.get("tie_word_embeddings") is not False)
        words = next((one for name in WORDS for one in (name, cls.base + name) if one in weights), None)
        told["tie_word_embeddings"] = True
        if words is not None and "lm_head.weight" in weights:
            here, there = weights[words], weights["lm_head.weight"]
            told["tie_word_embeddings"] = (here.shape, here.dtype) == (there.shape, there.dtype) and torch.equal(
                here, there
            )
        return told

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """The decoder is as deep as the encoder unless it says so; two keys may correct what one says of gates."""
        channels, name = config.get("d_kv") or 64, str(config.get("feed_forward_proj") or "relu")
        heads, width = told["heads"], told["width"]
        if not isinstance(channels, int) or not isinstance(heads, int) or channels * heads != width:
            raise MeristemError(
                f"config.json: d_kv={channels} × num_heads={heads} is not d_model={width}: "
                f"heads divide the width in the {cls.family} family"
            )
        full = next((long for long, short in SHORT.items() if short == name), name)
        gated = bool(config.get("is_gated_act", full.startswith("gated-")))
        inner = str(config.get("dense_act_fn") or full.removeprefix("gated-"))
        if (gated, inner) not in ACTIVATION:
            raise MeristemError(f"config.json: feed_forward_proj={name!r} ({inner}) has no counterpart")
        layers = config.get("num_decoder_layers") or told["layers"]
        return {**told, "activation": ACTIVATION[gated, inner], "decoder_layers": layers}

    @classmethod
    def config(cls, settings: Any) -> dict[str, Any]:
        """The shape, heads and gates in their words."""
        gated, inner = next(key for key, ours in ACTIVATION.items() if ours == settings.activation)
        name = f"gated-{inner}" if gated else inner
        return {
            **super().config(settings),
            "d_kv": settings.width // settings.heads,
            "num_decoder_layers": settings.decoder_layers or settings.layers,
            "feed_forward_proj": SHORT.get(name, name),
            "is_gated_act": gated,
            "dense_act_fn": inner,
        }

    @classmethod
    def objective(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Spans hidden behind sentinels."""
        return {**super().objective(name, config), "kind": "spans"}

    @classmethod
    def lines(cls, heads: Iterable[str]) -> tuple[Line, ...]:
        """Only the class for sequences has a prefix before the body's names."""
        lines = super().lines(heads)
        return lines if "classification" in heads else tuple(map(_bare, lines))

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """An output of its own is said to be one, though transformers 5 warns of it whatever a folder says."""
        notes = super().finish(config, found, revived)
        config["tie_word_embeddings"] = revived.recipe.model.tied
        if not revived.recipe.model.tied:
            notes.append("lm_head is not tied: transformers 5 warns of that, as of every T5 1.1, and uses it as it is")
        return notes


def _bare(line: Line) -> Line:
    several = (line.theirs,) if isinstance(line.theirs, str) else line.theirs
    return replace(line, theirs=tuple(name.removeprefix(T5.base) for name in several))
