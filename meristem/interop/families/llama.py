"""Llama as transformers keeps it: the modern family where it looks one way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from meristem.errors import MeristemError
from meristem.interop.families._causal import Causal
from meristem.interop.lines import GROUPED, JOINED, Line
from meristem.interop.published import Carried, Entry

LAYER = (
    Line(
        "backbone.stack.layers.{}.attention.project",
        tuple(f"model.layers.{{}}.self_attn.{part}_proj" for part in "qkv"),
        GROUPED,
    ),
    Line("backbone.stack.layers.{}.attention.output", "model.layers.{}.self_attn.o_proj"),
    Line("backbone.stack.layers.{}.attention_norm", "model.layers.{}.input_layernorm"),
    Line(
        "backbone.stack.layers.{}.feed_forward.widen",
        tuple(f"model.layers.{{}}.mlp.{part}_proj" for part in ("gate", "up")),
        JOINED,
    ),
    Line("backbone.stack.layers.{}.feed_forward.narrow", "model.layers.{}.mlp.down_proj"),
    Line("backbone.stack.layers.{}.feed_forward_norm", "model.layers.{}.post_attention_layernorm"),
)

SHAPE = (
    Entry("layers", "num_hidden_layers", 32),
    Entry("width", "hidden_size", 4096),
    Entry("heads", "num_attention_heads", 32),
    Entry("groups", "num_key_value_heads", None),
    Entry("inner", "intermediate_size", 11008),
    Entry("length", "max_position_embeddings", 2048),
    Entry("dropout", "attention_dropout", 0.0),
    Entry("norm_epsilon", "rms_norm_eps", 1e-6),
    Entry("rotary_base", ("rope_parameters.rope_theta", "rope_theta"), 10_000.0),
)


class Llama(Causal):
    """RMS norms before each part, rotary positions, a gated feed-forward part."""

    type = "llama"
    family = "modern"
    entries: ClassVar[tuple[Entry, ...]] = (
        *SHAPE,
        Entry("bias", ("attention_bias", "mlp_bias"), False),
        Entry("activation", "hidden_act", "silu", {"swiglu": "silu", "geglu": "gelu_new"}),
        Entry("tied", "tie_word_embeddings", False),
    )
    fixed = {"norm": "rms", "norm_place": "pre", "positions": "rotary"}
    demands = {"rope_parameters.rope_type": "default", "rope_parameters.partial_rotary_factor": 1.0}
    way = "causal"
    base = "model."
    body = (
        *LAYER,
        Line("backbone.stack.final_norm", "model.norm"),
        Line("backbone.embed.tokens", "model.embed_tokens"),
    )
    heads = {
        "clm": Carried("vocabulary", (Line("heads.clm", "lm_head"),)),  # a tensor of its own where it is not tied
        "classification": Carried("scores", (Line("heads.classification", "score"),), classes=0),
        "tagging": Carried("tags", (Line("heads.tagging", "score"),), classes=0),
        "span": Carried("tags", (Line("heads.span", "qa_outputs"),), classes=2),
    }
    architectures = {
        "LlamaModel": (),
        "LlamaForCausalLM": ("clm",),
        "LlamaForSequenceClassification": ("classification",),
        "LlamaForTokenClassification": ("tagging",),
        "LlamaForQuestionAnswering": ("span",),
    }
    answering: ClassVar[str] = "transformer."
    """What stands before the names of the body in their class for questions."""
    ties = {"lm_head.weight": "model.embed_tokens.weight"}
    without = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    edges = (1, 2)

    @classmethod
    def lines(cls, heads: Iterable[str]) -> tuple[Line, ...]:
        """Only the class for questions has another prefix before the body's names."""
        heads = tuple(heads)
        lines = super().lines(heads)
        return tuple(_under(cls.answering, line) for line in lines) if "span" in heads else lines

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Every bias or none, heads that divide the width, and turns that nothing stretches."""
        if bool(config.get("mlp_bias")) != bool(told.get("bias")):
            raise MeristemError("config.json: attention_bias and mlp_bias differ; only both or none have a counterpart")
        channels = told["width"] // told["heads"]
        if (size := config.get("head_dim")) not in (None, channels):
            raise MeristemError(f"config.json: head_dim={size}: only hidden_size / heads = {channels} is known here")
        if stretched := config.get("rope_scaling"):  # as written before transformers 5
            raise MeristemError(f"config.json: rope_scaling={stretched}: stretched positions have no counterpart")
        return told


def _under(prefix: str, line: Line) -> Line:
    """A line of the body with another prefix in their names."""
    names = (f"{prefix}{one.removeprefix(Llama.base)}" if one.startswith(Llama.base) else one for one in line.several)
    return replace(line, theirs=tuple(names))
