"""GPT as transformers keeps it: GPT-2's names for its layers, other ones for its embeddings."""

from __future__ import annotations

from meristem.interop.families._causal import CHOICE, Causal
from meristem.interop.families.gpt2 import LAYER
from meristem.interop.lines import Line
from meristem.interop.published import Carried, Entry


class OpenAIGPT(Causal):
    """Post-norm, no norm at the end, always four times as wide inside."""

    type = "openai-gpt"
    family = "gpt"
    entries = (
        Entry("layers", "n_layer", 12),
        Entry("width", "n_embd", 768),
        Entry("heads", "n_head", 12),
        Entry("length", "n_positions", 512),
        Entry("activation", "afn", "gelu", {"gelu_tanh": "gelu", "relu": "relu"}),  # their gelu is the approximation
        Entry("dropout", ("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
        Entry("norm_epsilon", "layer_norm_epsilon", 1e-5),
    )
    fixed = {"norm_place": "post", "positions": "learned"}
    demands = {"tie_word_embeddings": True}
    base = "transformer."
    body = (
        *LAYER,
        Line("backbone.embed.tokens", "transformer.tokens_embed"),
        Line("backbone.embed.positions", "transformer.positions_embed"),
    )
    heads = {
        "clm": Carried("vocabulary", ()),
        "choice": CHOICE,
        "classification": Carried("scores", (Line("heads.classification", "score"),), classes=0),
    }
    architectures = {
        "OpenAIGPTModel": (),
        "OpenAIGPTLMHeadModel": ("clm",),
        "OpenAIGPTDoubleHeadsModel": ("clm", "choice"),
        "OpenAIGPTForSequenceClassification": ("classification",),
    }
    ties = {"lm_head.weight": "transformer.tokens_embed.weight"}
    without = (r"transformer\.h\.\d+\.attn\.bias", r"transformer\.position_ids")
    edges = (None, None)
