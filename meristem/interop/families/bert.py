"""BERT as transformers keeps it."""

from __future__ import annotations

from meristem.interop.lines import JOINED, Line
from meristem.interop.published import ACTIVATIONS, Carried, Entry, Published

LAYER = (
    Line(
        "backbone.stack.layers.{}.attention.project",
        tuple(f"bert.encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value")),
        JOINED,
    ),
    Line("backbone.stack.layers.{}.attention.output", "bert.encoder.layer.{}.attention.output.dense"),
    Line("backbone.stack.layers.{}.attention_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"),
    Line("backbone.stack.layers.{}.feed_forward.widen", "bert.encoder.layer.{}.intermediate.dense"),
    Line("backbone.stack.layers.{}.feed_forward.narrow", "bert.encoder.layer.{}.output.dense"),
    Line("backbone.stack.layers.{}.feed_forward_norm", "bert.encoder.layer.{}.output.LayerNorm"),
)


class Bert(Published):
    """Post-norm, learned positions, two segments."""

    type = "bert"
    family = "bert"
    entries = (
        Entry("layers", "num_hidden_layers", 12),
        Entry("width", "hidden_size", 768),
        Entry("heads", "num_attention_heads", 12),
        Entry("inner", "intermediate_size", 3072),
        Entry("length", "max_position_embeddings", 512),
        Entry("segments", "type_vocab_size", 2),
        Entry("activation", "hidden_act", "gelu", ACTIVATIONS),
        Entry("dropout", ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1),
        Entry("norm_epsilon", "layer_norm_eps", 1e-12),
    )
    fixed = {"norm_place": "post", "positions": "learned"}
    demands = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    base = "bert."
    body = (
        *LAYER,
        Line("backbone.embed.tokens", "bert.embeddings.word_embeddings"),
        Line("backbone.embed.positions", "bert.embeddings.position_embeddings"),
        Line("backbone.embed.segments", "bert.embeddings.token_type_embeddings"),
        Line("backbone.embed.norm", "bert.embeddings.LayerNorm"),
    )
    heads = {
        "mlm": Carried("vocabulary", (
            Line("heads.mlm.transform.dense", "cls.predictions.transform.dense"),
            Line("heads.mlm.transform.norm", "cls.predictions.transform.LayerNorm"),
            Line("heads.mlm.bias", "cls.predictions.bias"),
        )),
        "nsp": Carried("pooled", (
            Line("heads.nsp.dense", "bert.pooler.dense"),
            Line("heads.nsp.score", "cls.seq_relationship"),
        ), classes=2),
        "classification": Carried("pooled", (
            Line("heads.classification.dense", "bert.pooler.dense"),
            Line("heads.classification.score", "classifier"),
        ), classes=0),
        "tagging": Carried("tags", (Line("heads.tagging", "classifier"),), classes=0),
        "span": Carried("tags", (Line("heads.span", "qa_outputs"),), classes=2),
        "choice": Carried("pooled", (
            Line("heads.choice.dense", "bert.pooler.dense"),
            Line("heads.choice.score", "classifier"),
        ), classes=1),
    }  # fmt: skip
    architectures = {
        "BertModel": (),
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
    tokenizer_class = "BertTokenizer"
