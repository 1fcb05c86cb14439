"""XLNet as transformers keeps it: maps by head, and a head's channels beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.folder import Weights
from meristem.interop.lines import HEADED, Line, Shaped
from meristem.interop.published import ACTIVATIONS, Carried, Entry, Published
from meristem.settings import Settings
from meristem.tokenizers.tokenizer import Tokenizer

LAYER = (
    Line("backbone.stack.layers.{}.attention.query.weight", "transformer.layer.{}.rel_attn.q", HEADED),
    Line(
        "backbone.stack.layers.{}.attention.key_value.weight",
        ("transformer.layer.{}.rel_attn.k", "transformer.layer.{}.rel_attn.v"),
        HEADED,
    ),
    Line("backbone.stack.layers.{}.attention.relative.weight", "transformer.layer.{}.rel_attn.r", HEADED),
    Line(
        "backbone.stack.layers.{}.attention.output.weight",
        "transformer.layer.{}.rel_attn.o",
        Shaped(theirs=("width", "heads", -1), ours=("width", -1)),
    ),
    Line("backbone.stack.layers.{}.attention.segments", "transformer.layer.{}.rel_attn.seg_embed"),
    Line("backbone.stack.layers.{}.attention.biases.content", "transformer.layer.{}.rel_attn.r_w_bias"),
    Line("backbone.stack.layers.{}.attention.biases.distance", "transformer.layer.{}.rel_attn.r_r_bias"),
    Line("backbone.stack.layers.{}.attention.biases.segment", "transformer.layer.{}.rel_attn.r_s_bias"),
    Line("backbone.stack.layers.{}.attention_norm", "transformer.layer.{}.rel_attn.layer_norm"),
    Line("backbone.stack.layers.{}.feed_forward.widen", "transformer.layer.{}.ff.layer_1"),
    Line("backbone.stack.layers.{}.feed_forward.narrow", "transformer.layer.{}.ff.layer_2"),
    Line("backbone.stack.layers.{}.feed_forward_norm", "transformer.layer.{}.ff.layer_norm"),
)


TASK_HEADS = frozenset({"classification", "tagging", "span", "choice"})


def summary(name: str) -> tuple[Line, ...]:
    """Where a head that reads the last token has its two maps."""
    return (
        Line(f"heads.{name}.dense", "sequence_summary.summary"),
        Line(f"heads.{name}.score", "logits_proj"),
    )


class XLNet(Published):
    """Post-norm, relative positions, segments told apart in every layer."""

    type = "xlnet"
    family = "xlnet"
    entries = (
        Entry("layers", "n_layer", 24),
        Entry("width", "d_model", 1024),
        Entry("heads", "n_head", 16),
        Entry("inner", "d_inner", 4096),
        Entry("length", "n_positions", 512),  # theirs has no limit and keeps what it does not know
        Entry("activation", "ff_activation", "gelu", ACTIVATIONS),
        Entry("dropout", "dropout", 0.1),
        Entry("norm_epsilon", "layer_norm_eps", 1e-12),
    )
    fixed = {"norm_place": "post", "segments": True}
    demands = {
        "untie_r": True,
        "attn_type": "bi",
        "same_length": False,
        "summary_type": "last",
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "tie_word_embeddings": True,
    }
    free = frozenset({"both_ways", "memory_evaluating"})
    base = "transformer."
    body = (
        *LAYER,
        Line("backbone.tokens", "transformer.word_embedding"),
        Line("backbone.query", "transformer.mask_emb", Shaped(theirs=(1, 1, -1), ours=(-1,))),
    )
    heads = {
        "plm": Carried("vocabulary", (Line("heads.plm.bias", "lm_loss.bias"),)),
        "classification": Carried("pooled", summary("classification"), classes=0),
        "tagging": Carried("tags", (Line("heads.tagging", "classifier"),), classes=0),
        "span": Carried("tags", (Line("heads.span", "qa_outputs"),), classes=2),
        "choice": Carried("pooled", summary("choice"), classes=1),
    }
    architectures = {
        "XLNetModel": (),
        "XLNetLMHeadModel": ("plm",),
        "XLNetForSequenceClassification": ("classification",),
        "XLNetForTokenClassification": ("tagging",),
        "XLNetForQuestionAnsweringSimple": ("span",),
        "XLNetForMultipleChoice": ("choice",),
    }
    objectives = {"plm": ("plm",)}
    ties = {"lm_loss.weight": "transformer.word_embedding.weight"}
    frame, pair = "A end start:2", "A end B end start:2"
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    side = "left"

    @classmethod
    def settings(cls, config: Mapping[str, Any], place: str = "config.json") -> Settings:
        """Whether a text is summed up at its first or its last token is what the tokenizer's frame says here."""
        known = {**config, "summary_type": "last"} if config.get("summary_type") == "first" else config
        return super().settings(known, place)

    @classmethod
    def known(cls, config: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
        """A summary at the first token is read there only where the start token stands there."""
        if config.get("summary_type") == "first" and not _in_front(Tokenizer.load(weights.folder)):
            place = weights.folder / "config.json"
            raise MeristemError(f"{place}: summary_type='first', and the tokenizer puts no start token in front")
        return config

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """Texts of a task that began here have their start token in front, and are summed up there.

        A task reads each text by itself; memory among the outputs would stop their pipelines from batching.
        """
        if _has_task(revived):
            config["summary_type"] = "first" if _sums_up_first(revived) else "last"
            config["use_mems_eval"] = False
        return super().finish(config, found, revived)

    @classmethod
    def padding(cls, revived: Revived) -> str:
        """Away from where a task reads its summary."""
        return "right" if _has_task(revived) and _sums_up_first(revived) else cls.side

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """No memory is null there and 0 here, distances without a bound −1 there and none here."""
        memory, clamp = config.get("mem_len", 512) or 0, config.get("clamp_len", -1)
        told |= {"memory": memory, "clamp": clamp if clamp and clamp > 0 else None}
        return told | {"both_ways": bool(memory and config.get("bi_data"))}

    @classmethod
    def config(cls, settings: Any) -> dict[str, Any]:
        """The same the other way; `bi_data` would turn half of every batch round, so it is left to training here."""
        return super().config(settings) | {"mem_len": settings.memory or None, "clamp_len": settings.clamp or -1}


def _has_task(revived: Revived) -> bool:
    """Whether a head of the run answers for a task, learned here or brought by an import."""
    return revived.recipe.task is not None or bool(TASK_HEADS & set(revived.recipe.heads))


def _sums_up_first(revived: Revived) -> bool:
    """Whether texts of the run's task begin with the start token; an import's do where its tokenizer says so."""
    return _in_front(revived.tokenizer) and (revived.recipe.task is not None or revived.tokenizer.frame is not None)


def _in_front(tokenizer: Tokenizer) -> bool:
    """Whether the start token stands before a text; it does where a tokenizer leaves that to this library."""
    return tokenizer.start is not None and (tokenizer.frame is None or tokenizer.start in tokenizer.frame[0])
