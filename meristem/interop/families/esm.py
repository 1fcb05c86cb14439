"""ESM as transformers keeps it: pre-norm encoders with rotary positions and without segments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.families._encoder import READS, SIZES, TAGGING, Encoder, pooled, pooler, vocabulary
from meristem.interop.lines import JOINED, Line
from meristem.interop.published import Entry

HERE, THERE = "backbone.stack.layers.{}", "esm.encoder.layer.{}"
LAYER = (
    Line(
        f"{HERE}.attention.project",
        tuple(f"{THERE}.attention.self.{part}" for part in ("query", "key", "value")),
        JOINED,
    ),
    Line(f"{HERE}.attention.output", f"{THERE}.attention.output.dense"),
    Line(f"{HERE}.attention_norm", f"{THERE}.attention.LayerNorm"),
    Line(f"{HERE}.feed_forward.widen", f"{THERE}.intermediate.dense"),
    Line(f"{HERE}.feed_forward.narrow", f"{THERE}.output.dense"),
    Line(f"{HERE}.feed_forward_norm", f"{THERE}.LayerNorm"),
)
WORDS = "esm.embeddings.word_embeddings"


class Esm(Encoder):
    """Norms first, rotary positions, no segments."""

    type = "esm"
    family = "bert"
    also = ("roberta",)
    entries = (
        *SIZES,
        Entry("length", "max_position_embeddings", 1026),
        Entry("rotary_base", "rope_theta", 10_000.0),
    )
    fixed = {"norm_place": "pre", "positions": "rotary", "segments": 0}
    demands = {
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": False,
        "token_dropout": False,
        "is_folding_model": False,
        **READS,
    }
    base = "esm."
    pooling = "esm.pooler.dense"
    body = (
        *LAYER,
        Line("backbone.stack.final_norm", "esm.encoder.emb_layer_norm_after"),
        Line("backbone.embed.tokens", WORDS),
    )
    heads = {
        "pooler": pooler("esm.pooler.dense"),
        "mlm": vocabulary("mlm", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "classification": pooled("classification", "classifier.dense", "classifier.out_proj"),
        "tagging": TAGGING,
    }
    architectures = {
        "EsmModel": ("pooler",),
        "EsmForMaskedLM": ("mlm",),
        "EsmForSequenceClassification": ("classification",),
        "EsmForTokenClassification": ("tagging",),
    }
    objectives = {"mlm": ("mlm",)}
    ties = {"lm_head.decoder.weight": f"{WORDS}.weight"}
    without = (
        r"esm\.embeddings\.position_ids",
        r"esm\.contact_head\..*",
        r"esm\.(encoder\.layer\.(\d+|\*)\.attention\.self\.)?rotary_embeddings\.inv_freq",
        r"esm\.pooler\..*",
    )

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """What their class wants beside: which token is the mask, rotary frequencies, a head for contacts."""
        if config["pad_token_id"] is None:
            raise MeristemError("ESM wants to know the padding token, and this run's tokenizer has none")
        config["mask_token_id"] = revived.tokenizer.mask
        settings = revived.recipe.model
        channels = settings.width // settings.heads
        exponents = torch.arange(0, channels, 2, dtype=torch.float32) / channels
        found["esm.rotary_embeddings.inv_freq"] = 1.0 / settings.rotary_base**exponents
        found["esm.contact_head.regression.weight"] = torch.zeros(1, settings.layers * settings.heads)
        found["esm.contact_head.regression.bias"] = torch.zeros(1)
        return [
            "ESM is transformers' class for encoders with norms first and rotary positions; the numbers are the same",
            "contact_head: zeros; only their models of proteins use one",
            *super().finish(config, found, revived),
        ]
