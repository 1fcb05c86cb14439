"""ESM as transformers keeps it: what our pre-norm BERT and RoBERTa with rotary positions are over there."""

from __future__ import annotations

from collections.abc import Collection
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
WORDS, SEGMENTS = "esm.embeddings.word_embeddings.weight", "esm.segments.weight"


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
        Line("backbone.embed.tokens", WORDS.removesuffix(".weight")),
        Line("backbone.embed.segments", SEGMENTS.removesuffix(".weight")),  # `finish` folds them into the words
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
    ties = {"lm_head.decoder.weight": WORDS}
    without = (
        r"esm\.embeddings\.position_ids",
        r"esm\.contact_head\..*",
        r"esm\.(encoder\.layer\.(\d+|\*)\.attention\.self\.)?rotary_embeddings\.inv_freq",
        r"esm\.pooler\..*",
    )

    @classmethod
    def differences(cls, settings: Any, kinds: Collection[str] = ()) -> list[str]:
        """Segments are folded into the words."""
        return super().differences(settings.model_copy(update={"segments": 0}), kinds)

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """Segments folded, and what their class wants beside: which token is the mask, turns, a head for contacts."""
        if config["pad_token_id"] is None:
            raise MeristemError("ESM wants to know the padding token, and this run's tokenizer has none")
        config["mask_token_id"] = revived.tokenizer.mask
        settings, notes = revived.recipe.model, []
        if (segments := found.pop(SEGMENTS, None)) is not None:
            if "EsmForMaskedLM" in config["architectures"]:
                found["lm_head.decoder.weight"] = found[WORDS]
                config["tie_word_embeddings"] = False
            found[WORDS] = found[WORDS] + segments[0]
            notes.append("segments: the first is added to the words, so that single texts give the same; pairs do not")
        channels = settings.width // settings.heads
        exponents = torch.arange(0, channels, 2, dtype=torch.float32) / channels
        found["esm.rotary_embeddings.inv_freq"] = 1.0 / settings.rotary_base**exponents
        found["esm.contact_head.regression.weight"] = torch.zeros(1, settings.layers * settings.heads)
        found["esm.contact_head.regression.bias"] = torch.zeros(1)
        return [
            *notes,
            "contact_head: zeros; only their models of proteins use one",
            *super().finish(config, found, revived),
        ]
