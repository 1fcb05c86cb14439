"""What BERT and its relatives share: the names of a layer, the shapes of task heads, a pooler a body may lack."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from meristem.checkpoint.revive import Revived
from meristem.interop.lines import JOINED, Line
from meristem.interop.published import Carried, Entry, Published

SIZES = (
    Entry("layers", "num_hidden_layers", 12),
    Entry("width", "hidden_size", 768),
    Entry("heads", "num_attention_heads", 12),
    Entry("inner", "intermediate_size", 3072),
    Entry("dropout", ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1),
    Entry("norm_epsilon", "layer_norm_eps", 1e-12),
)
"""What each of them tells under the same name."""
READS = {"is_decoder": False, "add_cross_attention": False}
"""They read both ways, and read nothing but the text."""


def stack(ours: str, theirs: str) -> tuple[Line, ...]:
    """The layers of a BERT, wherever either side keeps them."""
    here, there = f"{ours}.stack.layers.{{}}", f"{theirs}.encoder.layer.{{}}"
    three = tuple(f"{there}.attention.self.{part}" for part in ("query", "key", "value"))
    return (
        Line(f"{here}.attention.project", three, JOINED),
        Line(f"{here}.attention.output", f"{there}.attention.output.dense"),
        Line(f"{here}.attention_norm", f"{there}.attention.output.LayerNorm"),
        Line(f"{here}.feed_forward.widen", f"{there}.intermediate.dense"),
        Line(f"{here}.feed_forward.narrow", f"{there}.output.dense"),
        Line(f"{here}.feed_forward_norm", f"{there}.output.LayerNorm"),
    )


def embeddings(theirs: str) -> tuple[Line, ...]:
    """Words, positions, segments and their norm."""
    return (
        Line("backbone.embed.tokens", f"{theirs}.embeddings.word_embeddings"),
        Line("backbone.embed.positions", f"{theirs}.embeddings.position_embeddings"),
        Line("backbone.embed.segments", f"{theirs}.embeddings.token_type_embeddings"),
        Line("backbone.embed.norm", f"{theirs}.embeddings.LayerNorm"),
    )


def vocabulary(head: str, dense: str, norm: str, bias: str) -> Carried:
    """Words behind a transform; what multiplies it is the embedding."""
    return Carried("vocabulary", (
        Line(f"heads.{head}.transform.dense", dense),
        Line(f"heads.{head}.transform.norm", norm),
        Line(f"heads.{head}.bias", bias),
    ))  # fmt: skip


def pooled(head: str, dense: str, score: str, classes: int = 0) -> Carried:
    """Scores of a whole text: as many as there are labels, unless the head has a number of its own."""
    return Carried("pooled", (Line(f"heads.{head}.dense", dense), Line(f"heads.{head}.score", score)), classes)


TAGGING = Carried("tags", (Line("heads.tagging", "classifier"),), classes=0)
SPAN = Carried("tags", (Line("heads.span", "qa_outputs"),), classes=2)


def pooler(theirs: str) -> Carried:
    """What a body saved without heads ends in."""
    return Carried("pooler", (Line("heads.pooler.dense", theirs),))


class Encoder(Published):
    """A table whose body class ends in a pooler: one that no head brings along is written as zeros, and it is said."""

    pooling: ClassVar[str | None] = None
    """Their name of the pooler's dense layer, where their body has one."""
    optional = frozenset({"pooler"})
    reader = {"pooler": "pooled"}

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """The pooler that the body class has: any head's that reads through one, or zeros."""
        body = config["architectures"][0] == next(iter(cls.architectures))
        if cls.pooling is None or not body or f"{cls.pooling}.weight" in found:
            return []
        state, width = revived.learner.model.state_dict(), revived.recipe.model.width
        for name in revived.learner.model.heads:
            for line in cls.heads[name].lines if name in cls.heads else ():
                if line.theirs == cls.pooling:
                    found |= {f"{cls.pooling}.{part}": state[f"{line.ours}.{part}"] for part in ("weight", "bias")}
                    return [f"pooler: that of the head {name}"]
        like = next(iter(found.values()))
        found |= {f"{cls.pooling}.weight": like.new_zeros(width, width), f"{cls.pooling}.bias": like.new_zeros(width)}
        return ["pooler: zeros, since the run has none"]
