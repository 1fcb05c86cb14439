"""ELECTRA's weight map for transformers: the discriminator, and its generator as a separate model in a subfolder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.blocks.transformer.electra_generator import generator_settings
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Model
from meristem.interop.families import _encoder as encoder
from meristem.interop.model_type import SPAN_HEAD, TAGGING_HEAD, ConfigEntry, HeadMapping
from meristem.interop.weight_map import WeightRule
from meristem.interop.weights_folder import FolderWeights
from meristem.interop.weights_folder import read_config as folder_config

VOCABULARY_NAMES = ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias")


class ElectraBaseModelType(encoder.EncoderModelType):
    """Discriminator or generator: post-norm, learned positions, embeddings that may be narrower than the model."""

    name = "electra"
    family = "electra"
    config_entries = (
        *(entry for entry in encoder.COMMON_ENTRIES if entry.ours not in ("hidden_size", "heads", "ffn_size")),
        ConfigEntry("hidden_size", "hidden_size", 256),
        ConfigEntry("heads", "num_attention_heads", 4),
        ConfigEntry("ffn_size", "intermediate_size", 1024),
        ConfigEntry("embedding_size", "embedding_size", 128),
        ConfigEntry("max_length", "max_position_embeddings", 512),
        ConfigEntry("segments", "type_vocab_size", 2),
        ConfigEntry("activation", "hidden_act", "gelu", {"gelu": "gelu"}),  # its vocabulary head always uses gelu
    )
    fixed_settings = {"norm_position": "post", "position_encoding": "learned", "pooler_activation": "gelu"}
    required_config = {
        "position_embedding_type": "absolute",
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        **encoder.ENCODER_CONFIG,
    }
    base_prefix = "electra."
    needs_segments = True
    model_input_names = ("input_ids", "token_type_ids", "attention_mask")
    objective_heads = {"rtd": ("rtd",), "mlm": ("mlm",)}
    tied_weights = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    ignored_patterns = (r"electra\.embeddings\.position_ids",)


class ElectraGeneratorModelType(ElectraBaseModelType):
    """The generator of an ELECTRA run: a separate model of its own width with shared embeddings."""

    body_rules = (
        *encoder.layer_rules("heads.generator.body", "electra"),
        WeightRule("heads.generator.body.project", "electra.embeddings_project"),
        *encoder.embedding_rules("electra"),
    )
    excluded_prefixes = ("backbone.stack.", "backbone.project.")
    heads = {"generator": HeadMapping("generator", encoder.vocabulary_head("generator.words", *VOCABULARY_NAMES).rules)}
    architectures = {"ElectraForMaskedLM": ("generator",)}

    @classmethod
    def exported_settings(cls, settings: Any, model: Model) -> Any:
        """Narrower than the discriminator, except for its embeddings."""
        divisor = dict(model.head_specs["generator"].sizes)["divide"]
        return generator_settings(settings, divisor).model_copy(
            update={"embedding_size": settings.embedding_size or settings.hidden_size}
        )


class ElectraModelType(ElectraBaseModelType):
    """A separate model: the discriminator, or a generator that is trained further as a masked model."""

    body_rules = (
        *encoder.layer_rules("backbone", "electra"),
        WeightRule("backbone.project", "electra.embeddings_project"),
        *encoder.embedding_rules("electra"),
    )
    heads = {
        "rtd": HeadMapping("token_score", (
            WeightRule("heads.rtd.dense", "discriminator_predictions.dense"),
            WeightRule("heads.rtd.score", "discriminator_predictions.dense_prediction"),
        )),
        "mlm": encoder.vocabulary_head("mlm", *VOCABULARY_NAMES),
        "classification": encoder.pooled_head("classification", "classifier.dense", "classifier.out_proj"),
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
        "choice": encoder.pooled_head("choice", "sequence_summary.summary", "classifier", classes=1),
    }  # fmt: skip
    architectures = {
        "ElectraModel": (),
        "ElectraForPreTraining": ("rtd",),
        "ElectraForMaskedLM": ("mlm",),
        "ElectraForSequenceClassification": ("classification",),
        "ElectraForTokenClassification": ("tagging",),
        "ElectraForQuestionAnswering": ("span",),
        "ElectraForMultipleChoice": ("choice",),
    }
    standalone_types = {"ElectraForMaskedLM": ElectraGeneratorModelType}
    subfolder_heads = {"generator": "ElectraForMaskedLM"}

    @classmethod
    def complete_config(cls, config: Mapping[str, Any], weights: FolderWeights) -> Mapping[str, Any]:
        """config.json with the width of the generator in the subfolder beside the discriminator."""
        if not (weights.folder / "generator" / "config.json").is_file():
            return config
        return {**config, "generator_size": folder_config(weights.folder / "generator").get("hidden_size", 256)}

    @classmethod
    def objective_recipe(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The generator's share of the width; a new one has a quarter, or the smallest valid fraction."""
        if name != "rtd":
            return super().objective_recipe(name, config)
        width, generator_size = int(config.get("hidden_size") or 256), config.get("generator_size")
        is_divisor = type(generator_size) is int and generator_size and width % generator_size == 0
        if generator_size is not None and not is_divisor:
            raise MeristemError(
                f"generator/config.json: hidden_size={generator_size!r} does not divide the discriminator's {width}"
            )
        smallest_fraction = next(divisor for divisor in (4, 3, 2, 1) if width % divisor == 0)
        divisor = width // generator_size if generator_size else smallest_fraction
        return {"name": name, "generator_size": f"1/{divisor}"}
