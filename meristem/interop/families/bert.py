"""BERT's config entries and weight map for transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.interop.families import _encoder as encoder
from meristem.interop.model_type import ACTIVATIONS, SPAN_HEAD, TAGGING_HEAD, ConfigEntry


class BertModelType(encoder.EncoderModelType):
    """Post-norm, learned positions, two segments."""

    name = "bert"
    family = "bert"
    config_entries = (
        *encoder.COMMON_ENTRIES,
        ConfigEntry("max_length", "max_position_embeddings", 512),
        ConfigEntry("segments", "type_vocab_size", 2),
        ConfigEntry("activation", "hidden_act", "gelu", ACTIVATIONS),
    )
    fixed_settings = {"norm_position": "post", "position_encoding": "learned"}
    required_config = {"position_embedding_type": "absolute", **encoder.ENCODER_CONFIG}
    base_prefix = "bert."
    pooler_name = "bert.pooler.dense"
    needs_segments = True  # a model without any is DistilBERT
    body_rules = (*encoder.layer_rules("backbone", "bert"), *encoder.embedding_rules("bert"))
    heads = {
        "pooler": encoder.pooler_head("bert.pooler.dense"),
        "mlm": encoder.vocabulary_head(
            "mlm", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "nsp": encoder.pooled_head("nsp", "bert.pooler.dense", "cls.seq_relationship", classes=2),
        "classification": encoder.pooled_head("classification", "bert.pooler.dense", "classifier"),
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
        "choice": encoder.pooled_head("choice", "bert.pooler.dense", "classifier", classes=1),
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
    objective_heads = {"mlm": ("mlm",), "nsp": ("nsp",)}
    tied_weights = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    ignored_patterns = (r"bert\.embeddings\.position_ids", r"bert\.pooler\..*")
    model_input_names = ("input_ids", "token_type_ids", "attention_mask")

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """A note for two heads: pipelines warn about the head of the class that they do not use."""
        notes = super().finalize_export(config, tensors, loaded)
        if config["architectures"] == ["BertForPreTraining"]:
            notes.append("for pipeline('fill-mask') alone: --architecture BertForMaskedLM, without the head nsp")
        return notes
