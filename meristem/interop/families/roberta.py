"""RoBERTa as transformers keeps it: positions are counted from behind the number of the padding token."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.families._encoder import (
    READS,
    SIZES,
    SPAN,
    TAGGING,
    Encoder,
    embeddings,
    pooled,
    pooler,
    stack,
    vocabulary,
)
from meristem.interop.folder import Weights
from meristem.interop.lines import Line, Way
from meristem.interop.published import Entry

PADDING = 1  # RoBERTa's own <pad>
POSITIONS = "roberta.embeddings.position_embeddings"
TYPES = "roberta.embeddings.token_type_embeddings"


class Counted(Way):
    """Ours are the last rows: the padding's and those before it are no positions."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (one,) = theirs
        return one[len(one) - settings.length :]


class Roberta(Encoder):
    """Post-norm, learned positions, one segment that says nothing."""

    type = "roberta"
    family = "roberta"
    entries = (
        *SIZES,
        Entry("length", "max_position_embeddings", 512),
        Entry("segments", "type_vocab_size", 2),
        Entry("activation", "hidden_act", "gelu", {"gelu": "gelu"}),  # their words are behind gelu whatever it is
    )
    fixed = {"norm_place": "post", "positions": "learned"}
    demands = {"position_embedding_type": "absolute", **READS}
    base = "roberta."
    pooling = "roberta.pooler.dense"
    body = (
        *stack("backbone", "roberta"),
        Line("backbone.embed.positions", POSITIONS, Counted()),
        *embeddings("roberta"),
    )
    heads = {
        "pooler": pooler("roberta.pooler.dense"),
        "mlm": vocabulary("mlm", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "classification": pooled("classification", "classifier.dense", "classifier.out_proj"),
        "tagging": TAGGING,
        "span": SPAN,
        "choice": pooled("choice", "roberta.pooler.dense", "classifier", classes=1),
    }
    architectures = {
        "RobertaModel": ("pooler",),
        "RobertaForMaskedLM": ("mlm",),
        "RobertaForSequenceClassification": ("classification",),
        "RobertaForTokenClassification": ("tagging",),
        "RobertaForQuestionAnswering": ("span",),
        "RobertaForMultipleChoice": ("choice",),
    }
    objectives = {"mlm": ("mlm",)}
    ties = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    without = (r"roberta\.embeddings\.position_ids", r"roberta\.pooler\..*")
    zeros = (r"(roberta\.)?embeddings\.token_type_embeddings\.weight",)
    pair = "start A end end B end"
    marks = {"bos_token": "start", "eos_token": "end", "cls_token": "start", "sep_token": "end"}

    @classmethod
    def known(cls, config: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
        """A single segment of zeros, which fairseq's conversion and our export write, is none."""
        full = f"{TYPES}.weight"
        name = full if full in weights else full.removeprefix(cls.base)
        none = config.get("type_vocab_size") == 1 and name in weights and not weights[name].any()
        return {**config, "type_vocab_size": 0} if none else config

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Rows up to the padding's are no positions."""
        pad = config.get("pad_token_id")
        return told | {"length": told["length"] - (PADDING if pad is None else int(pad)) - 1}

    @classmethod
    def config(cls, settings: Any) -> dict[str, Any]:
        """A row for each position and for the padding and what is before it; no segment is one of zeros."""
        out = super().config(settings)
        return out | {
            "max_position_embeddings": settings.length + PADDING + 1,
            "type_vocab_size": settings.segments or 1,
        }

    @classmethod
    def differences(cls, settings: Any, kinds: Collection[str] = ()) -> list[str]:
        """One segment of zeros is none."""
        return super().differences(settings.model_copy(update={"segments": settings.segments or 1}), kinds)

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """The rows before the first position, and the segment that a run of ours leaves out."""
        pad = config["pad_token_id"]
        if pad is None:
            raise MeristemError("RoBERTa counts positions from the padding token, and this run's tokenizer has none")
        positions = found[f"{POSITIONS}.weight"]
        length, width = positions.shape
        config["max_position_embeddings"] = length + pad + 1
        whole = positions.new_zeros(length + pad + 1, width)
        whole[pad + 1 :] = positions
        found[f"{POSITIONS}.weight"] = whole
        found.setdefault(f"{TYPES}.weight", positions.new_zeros(1, width))
        return super().finish(config, found, revived)
