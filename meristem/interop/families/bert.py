"""BERT as transformers keeps it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from meristem.checkpoint.revive import Revived
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
from meristem.interop.published import ACTIVATIONS, Entry


class Bert(Encoder):
    """Post-norm, learned positions, two segments."""

    type = "bert"
    family = "bert"
    entries = (
        *SIZES,
        Entry("length", "max_position_embeddings", 512),
        Entry("segments", "type_vocab_size", 2),
        Entry("activation", "hidden_act", "gelu", ACTIVATIONS),
    )
    fixed = {"norm_place": "post", "positions": "learned"}
    demands = {"position_embedding_type": "absolute", **READS}
    base = "bert."
    pooling = "bert.pooler.dense"
    body = (*stack("backbone", "bert"), *embeddings("bert"))
    heads = {
        "pooler": pooler("bert.pooler.dense"),
        "mlm": vocabulary(
            "mlm", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "nsp": pooled("nsp", "bert.pooler.dense", "cls.seq_relationship", classes=2),
        "classification": pooled("classification", "bert.pooler.dense", "classifier"),
        "tagging": TAGGING,
        "span": SPAN,
        "choice": pooled("choice", "bert.pooler.dense", "classifier", classes=1),
    }
    architectures = {
        "BertModel": ("pooler",),
        "BertForMaskedLM": ("mlm",),
        "BertForPreTraining": ("mlm", "nsp"),
        "BertForNextSentencePrediction": ("nsp",),
        "BertForSequenceClassification": ("classification",),
        "BertForTokenClassification": ("tagging",),
        "BertForQuestionAnswering": ("span",),
        "BertForMultipleChoice": ("choice",),
    }
    objectives = {"mlm": ("mlm",), "nsp": ("nsp",)}
    ties = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    without = (r"bert\.embeddings\.position_ids", r"bert\.pooler\..*")
    inputs = ("input_ids", "token_type_ids", "attention_mask")

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """Two heads make a class that their pipelines open with a report of what they do not use."""
        notes = super().finish(config, found, revived)
        if config["architectures"] == ["BertForPreTraining"]:
            notes.append("for pipeline('fill-mask') alone: --architecture BertForMaskedLM, without the head nsp")
        return notes

    @classmethod
    def differences(cls, settings: Any, kinds: Any = ()) -> list[str]:
        """Theirs has one segment at least; a model without any is DistilBERT's."""
        return super().differences(settings, kinds) + ["model.segments=0"] * (settings.segments == 0)
