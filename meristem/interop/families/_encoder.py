"""Weight rules shared by BERT and its relatives: layers, task heads, and the optional pooler."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.interop.model_type import ConfigEntry, HeadMapping, ModelType
from meristem.interop.weight_map import WeightNames, WeightRule, weight_table

COMMON_ENTRIES = (
    ConfigEntry("layers", "num_hidden_layers", 12),
    ConfigEntry("hidden_size", "hidden_size", 768),
    ConfigEntry("heads", "num_attention_heads", 12),
    ConfigEntry("ffn_size", "intermediate_size", 3072),
    ConfigEntry("dropout", ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1),
    ConfigEntry("norm_epsilon", "layer_norm_eps", 1e-12),
)
"""Config entries with the same name in all of them."""
ENCODER_CONFIG = {"is_decoder": False, "add_cross_attention": False}
"""Bidirectional encoders without cross-attention."""


def layer_rules(ours: str, theirs: str) -> tuple[WeightRule, ...]:
    """The layers of a BERT, under any prefix of ours and theirs."""
    names: WeightNames = {
        "attention.project": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.widen": "intermediate.dense",
        "feed_forward.narrow": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
    return weight_table(f"{ours}.stack.layers.{{}}", f"{theirs}.encoder.layer.{{}}", names)


def embedding_rules(theirs: str) -> tuple[WeightRule, ...]:
    """Token, position and segment embeddings and their norm."""
    names = {
        "tokens": "word_embeddings",
        "positions": "position_embeddings",
        "segments": "token_type_embeddings",
        "norm": "LayerNorm",
    }
    return weight_table("backbone.embed", f"{theirs}.embeddings", names)


def vocabulary_head(head: str, dense: str, norm: str, bias: str) -> HeadMapping:
    """A vocabulary head with a transform; its output matrix is the embedding."""
    return HeadMapping("vocabulary", (
        WeightRule(f"heads.{head}.transform.dense", dense),
        WeightRule(f"heads.{head}.transform.norm", norm),
        WeightRule(f"heads.{head}.bias", bias),
    ))  # fmt: skip


def pooled_head(head: str, dense: str, score: str, classes: int = 0) -> HeadMapping:
    """A head on the pooled text: as many scores as labels, unless `classes` fixes the number."""
    return HeadMapping(
        "pooled", (WeightRule(f"heads.{head}.dense", dense), WeightRule(f"heads.{head}.score", score)), classes
    )


def pooler_head(theirs: str) -> HeadMapping:
    """The pooler of a base model saved without heads."""
    return HeadMapping("pooler", (WeightRule("heads.pooler.dense", theirs),))


class EncoderModelType(ModelType):
    """Base class of types with a pooler: if no head of a run has one, it is exported as zeros, with a note."""

    pooler_name: ClassVar[str | None] = None
    """Their name of the pooler's dense layer, if the base model has one."""
    needs_segments: ClassVar[bool] = False
    """Whether it has at least one segment."""
    optional_heads = frozenset({"pooler"})
    head_only_settings = {"pooler_activation": "pooled"}

    @classmethod
    def unsupported_settings(cls, settings: Any, head_kinds: Collection[str] = ()) -> list[str]:
        """Also no segments, where it has at least one."""
        lacks_segments = cls.needs_segments and settings.segments == 0
        return super().unsupported_settings(settings, head_kinds) + ["model.segments=0"] * lacks_segments

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Adds the pooler of the base model: that of any head with one, or zeros."""
        is_body_class = config["architectures"][0] == next(iter(cls.architectures))
        if cls.pooler_name is None or not is_body_class or f"{cls.pooler_name}.weight" in tensors:
            return []
        state, width = loaded.learner.model.state_dict(), loaded.recipe.model.hidden_size
        for name in loaded.learner.model.heads:
            for rule in cls.heads[name].rules if name in cls.heads else ():
                if rule.theirs == cls.pooler_name:
                    tensors |= {
                        f"{cls.pooler_name}.{part}": state[f"{rule.ours}.{part}"] for part in ("weight", "bias")
                    }
                    return [f"pooler: taken from the head {name}"]
        any_tensor = next(iter(tensors.values()))
        tensors |= {
            f"{cls.pooler_name}.weight": any_tensor.new_zeros(width, width),
            f"{cls.pooler_name}.bias": any_tensor.new_zeros(width),
        }
        return ["pooler: zeros, since the run has none"]
