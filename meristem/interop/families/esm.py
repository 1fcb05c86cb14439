"""ESM's config entries and weight map for transformers: pre-norm encoders with rotary positions, without segments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from meristem.blocks.transformer.stack import StackSettings
from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.interop.families import _encoder as encoder
from meristem.interop.model_type import TAGGING_HEAD, ConfigEntry
from meristem.interop.weight_map import WeightNames, WeightRule, weight_table

LAYER_NAMES: WeightNames = {
    "attention.project": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.LayerNorm",
    "feed_forward.widen": "intermediate.dense",
    "feed_forward.narrow": "output.dense",
    "feed_forward_norm": "LayerNorm",
}
WORD_EMBEDDINGS = "esm.embeddings.word_embeddings"


class EsmModelType(encoder.EncoderModelType):
    """Pre-norm, rotary positions, no segments."""

    name = "esm"
    family = "bert"
    extra_families = ("roberta",)
    config_entries = (
        *encoder.COMMON_ENTRIES,
        ConfigEntry("max_length", "max_position_embeddings", 1026),
        ConfigEntry("rotary_base", "rope_theta", 10_000.0),
    )
    fixed_settings = {"norm_position": "pre", "position_encoding": "rotary", "segments": 0}
    required_config = {
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": False,
        "token_dropout": False,
        "is_folding_model": False,
        **encoder.ENCODER_CONFIG,
    }
    base_prefix = "esm."
    pooler_name = "esm.pooler.dense"
    body_rules = (
        *weight_table("backbone.stack.layers.{}", "esm.encoder.layer.{}", LAYER_NAMES),
        WeightRule("backbone.stack.final_norm", "esm.encoder.emb_layer_norm_after"),
        WeightRule("backbone.embed.tokens", WORD_EMBEDDINGS),
    )
    heads = {
        "pooler": encoder.pooler_head("esm.pooler.dense"),
        "mlm": encoder.vocabulary_head("mlm", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "classification": encoder.pooled_head("classification", "classifier.dense", "classifier.out_proj"),
        "tagging": TAGGING_HEAD,
    }
    architectures = {
        "EsmModel": ("pooler",),
        "EsmForMaskedLM": ("mlm",),
        "EsmForSequenceClassification": ("classification",),
        "EsmForTokenClassification": ("tagging",),
    }
    objective_heads = {"mlm": ("mlm",)}
    tied_weights = {"lm_head.decoder.weight": f"{WORD_EMBEDDINGS}.weight"}
    ignored_patterns = (
        r"esm\.embeddings\.position_ids",
        r"esm\.contact_head\..*",
        r"esm\.(encoder\.layer\.(\d+|\*)\.attention\.self\.)?rotary_embeddings\.inv_freq",
        r"esm\.pooler\..*",
    )

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Adds what the class needs: the mask token, rotary frequencies, a contact head."""
        if config["pad_token_id"] is None:
            raise MeristemError("ESM needs a padding token, and this run's tokenizer has none")
        config["mask_token_id"] = loaded.tokenizer.mask
        settings = loaded.recipe.model
        assert isinstance(settings, StackSettings)
        head_dim = settings.hidden_size // settings.heads
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        tensors["esm.rotary_embeddings.inv_freq"] = 1.0 / settings.rotary_base**exponents
        tensors["esm.contact_head.regression.weight"] = torch.zeros(1, settings.layers * settings.heads)
        tensors["esm.contact_head.regression.bias"] = torch.zeros(1)
        return [
            "ESM is transformers' class for pre-norm encoders with rotary positions; the outputs are the same",
            "contact_head: zeros; only protein models use it",
            *super().finalize_export(config, tensors, loaded),
        ]
