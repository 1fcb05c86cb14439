"""GPT-2 as transformers keeps it: linear maps lie on their side."""

from __future__ import annotations

from meristem.interop.families._causal import CHOICE, Causal
from meristem.interop.lines import LYING, Line
from meristem.interop.published import ACTIVATIONS, Carried, Entry

LAYER = (
    Line("backbone.stack.layers.{}.attention.project", "transformer.h.{}.attn.c_attn", LYING),
    Line("backbone.stack.layers.{}.attention.output", "transformer.h.{}.attn.c_proj", LYING),
    Line("backbone.stack.layers.{}.feed_forward.widen", "transformer.h.{}.mlp.c_fc", LYING),
    Line("backbone.stack.layers.{}.feed_forward.narrow", "transformer.h.{}.mlp.c_proj", LYING),
    Line("backbone.stack.layers.{}.attention_norm", "transformer.h.{}.ln_1"),
    Line("backbone.stack.layers.{}.feed_forward_norm", "transformer.h.{}.ln_2"),
)


class GPT2(Causal):
    """Pre-norm, learned positions, the vocabulary a bare tie."""

    type = "gpt2"
    family = "gpt2"
    entries = (
        Entry("layers", "n_layer", 12),
        Entry("width", "n_embd", 768),
        Entry("heads", "n_head", 12),
        Entry("inner", "n_inner", None),
        Entry("length", "n_positions", 1024),
        Entry("activation", "activation_function", "gelu_new", ACTIVATIONS),
        Entry("dropout", ("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
        Entry("norm_epsilon", "layer_norm_epsilon", 1e-5),
    )
    fixed = {"norm_place": "pre", "positions": "learned"}
    demands = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    base = "transformer."
    body = (
        *LAYER,
        Line("backbone.stack.final_norm", "transformer.ln_f"),
        Line("backbone.embed.tokens", "transformer.wte"),
        Line("backbone.embed.positions", "transformer.wpe"),
    )
    heads = {
        "clm": Carried("vocabulary", ()),
        "choice": CHOICE,
        "classification": Carried("scores", (Line("heads.classification", "score"),), classes=0),
        "tagging": Carried("tags", (Line("heads.tagging", "classifier"),), classes=0),
        "span": Carried("tags", (Line("heads.span", "qa_outputs"),), classes=2),
    }
    architectures = {
        "GPT2Model": (),
        "GPT2LMHeadModel": ("clm",),
        "GPT2DoubleHeadsModel": ("clm", "choice"),
        "GPT2ForSequenceClassification": ("classification",),
        "GPT2ForTokenClassification": ("tagging",),
        "GPT2ForQuestionAnswering": ("span",),
    }
    ties = {"lm_head.weight": "transformer.wte.weight"}
    without = (r"transformer\.h\.\d+\.attn\.(masked_)?bias",)
    edges = (50256, 50256)
