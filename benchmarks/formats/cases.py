"""The runs that are compared with each consumer: a recipe's architecture, with what is changed in it."""

from __future__ import annotations

from dataclasses import dataclass

UNIGRAM = "tokenizer.kind=unigram"
LOWERCASE = "tokenizer.lowercase=true"
WORDPIECE = "tokenizer.kind=wordpiece"
BPE = "tokenizer.kind=bpe"


@dataclass(frozen=True)
class Case:
    """One run."""

    recipe: str
    overrides: tuple[str, ...] = ()
    exact: bool = False
    """llama.cpp: whether it computes all of the model's functions in float32."""

    @property
    def name(self) -> str:
        """Recipe and changes."""
        return ", ".join([self.recipe, *self.overrides])


GGUF_CASES = (
    Case("gpt2-mini"),
    Case("gpt2-mini", (UNIGRAM,)),
    Case("modern-mini", ("model.kv_heads=2",), exact=True),
    Case("modern-mini", ("model.bias=true", "model.tie_embeddings=false"), exact=True),
    Case("bert-mini"),
    Case("bert-mini", (LOWERCASE,)),
    Case("bert-mini", (UNIGRAM,)),
    Case("bert-mini", (BPE,)),
    Case("modernbert-mini"),
    Case("t5-mini", (UNIGRAM, LOWERCASE)),
    Case("t5-mini", ("model.scale_output=true", "model.activation=relu", "model.decoder_layers=2"), exact=True),
)
CTRANSLATE2_CASES = (
    Case("gpt2-mini"),
    Case("gpt-mini"),
    Case("modern-mini", ("model.kv_heads=2",)),
    Case("bert-mini"),
    Case("bart-mini"),
    Case("t5-mini"),
    Case("transformer-mini"),
    Case("transformer-base", ("tokenizer.vocab_size=700",)),
)
SENTENCE_CASES = tuple(
    Case(recipe) for recipe in ("contrastive-mini", "bert-mini", "roberta-mini", "electra-mini", "modernbert-mini")
)
FFN_256 = ("model.ffn_size=256",)
"""OpenAIGPTConfig has no size of the feed-forward layer: it is always four times the hidden size."""
TRANSFORMERS_CASES = (
    Case("gpt-mini", FFN_256),
    *(Case(recipe) for recipe in ("gpt2-mini", "modern-mini", "mamba-mini", "bart-mini", "t5-mini", "bert-mini")),
    *(Case(recipe) for recipe in ("roberta-mini", "roberta-mini-prenorm", "electra-mini", "xlnet-mini")),
    *(Case(recipe) for recipe in ("modernbert-mini", "contrastive-mini")),
)
ONNX_CASES = tuple(
    Case(recipe)
    for recipe in (
        "gpt-mini",
        "gpt2-mini",
        "modern-mini",
        "bart-mini",
        "t5-mini",
        "transformer-mini",
        "bert-mini",
        "roberta-mini",
        "electra-mini",
        "xlnet-mini",
        "modernbert-mini",
    )
)
