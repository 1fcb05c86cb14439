"""DistilBERT as transformers keeps it: a BERT without segments, under names of its own."""

from __future__ import annotations

from meristem.interop.families._encoder import SPAN, TAGGING, Encoder, pooled, vocabulary
from meristem.interop.lines import JOINED, Line
from meristem.interop.published import ACTIVATIONS, Entry

HERE, THERE = "backbone.stack.layers.{}", "distilbert.transformer.layer.{}"
LAYER = (
    Line(f"{HERE}.attention.project", tuple(f"{THERE}.attention.{part}_lin" for part in "qkv"), JOINED),
    Line(f"{HERE}.attention.output", f"{THERE}.attention.out_lin"),
    Line(f"{HERE}.attention_norm", f"{THERE}.sa_layer_norm"),
    Line(f"{HERE}.feed_forward.widen", f"{THERE}.ffn.lin1"),
    Line(f"{HERE}.feed_forward.narrow", f"{THERE}.ffn.lin2"),
    Line(f"{HERE}.feed_forward_norm", f"{THERE}.output_layer_norm"),
)


class DistilBert(Encoder):
    """Post-norm, learned positions, relu under the scores of a whole text."""

    type = "distilbert"
    family = "bert"
    entries = (
        Entry("layers", "n_layers", 6),
        Entry("width", "dim", 768),
        Entry("heads", "n_heads", 12),
        Entry("inner", "hidden_dim", 3072),
        Entry("length", "max_position_embeddings", 512),
        Entry("activation", "activation", "gelu", ACTIVATIONS),
        Entry("dropout", ("dropout", "attention_dropout"), 0.1),
    )
    fixed = {"norm_place": "post", "positions": "learned", "segments": 0, "norm_epsilon": 1e-12, "pooler": "relu"}
    demands = {"sinusoidal_pos_embds": False}
    base = "distilbert."
    body = (
        *LAYER,
        Line("backbone.embed.tokens", "distilbert.embeddings.word_embeddings"),
        Line("backbone.embed.positions", "distilbert.embeddings.position_embeddings"),
        Line("backbone.embed.norm", "distilbert.embeddings.LayerNorm"),
    )
    heads = {
        "mlm": vocabulary("mlm", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "classification": pooled("classification", "pre_classifier", "classifier"),
        "tagging": TAGGING,
        "span": SPAN,
        "choice": pooled("choice", "pre_classifier", "classifier", classes=1),
    }
    architectures = {
        "DistilBertModel": (),
        "DistilBertForMaskedLM": ("mlm",),
        "DistilBertForSequenceClassification": ("classification",),
        "DistilBertForTokenClassification": ("tagging",),
        "DistilBertForQuestionAnswering": ("span",),
        "DistilBertForMultipleChoice": ("choice",),
    }
    objectives = {"mlm": ("mlm",)}
    ties = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    without = (r"distilbert\.embeddings\.position_ids",)
