"""RoBERTa's config entries and weight map for transformers: positions are counted from the padding token's id."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.interop.families import _encoder as encoder
from meristem.interop.model_type import SPAN_HEAD, TAGGING_HEAD, ConfigEntry
from meristem.interop.weight_map import WeightRule, WeightTransform
from meristem.interop.weights_folder import FolderWeights

DEFAULT_PAD_ID = 1  # RoBERTa's own <pad>
POSITIONS = "roberta.embeddings.position_embeddings"
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings"


class LastRows(WeightTransform):
    """Ours are the last rows: those up to the padding token's id are not positions."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (tensor,) = theirs
        return tensor[len(tensor) - settings.max_length :]


class RobertaModelType(encoder.EncoderModelType):
    """Post-norm, learned positions, one segment without effect."""

    name = "roberta"
    family = "roberta"
    config_entries = (
        *encoder.COMMON_ENTRIES,
        ConfigEntry("max_length", "max_position_embeddings", 512),
        ConfigEntry("segments", "type_vocab_size", 2),
        ConfigEntry("activation", "hidden_act", "gelu", {"gelu": "gelu"}),  # its vocabulary head always uses gelu
    )
    fixed_settings = {"norm_position": "post", "position_encoding": "learned"}
    required_config = {"position_embedding_type": "absolute", **encoder.ENCODER_CONFIG}
    base_prefix = "roberta."
    pooler_name = "roberta.pooler.dense"
    body_rules = (
        *encoder.layer_rules("backbone", "roberta"),
        WeightRule("backbone.embed.positions", POSITIONS, LastRows()),
        *encoder.embedding_rules("roberta"),
    )
    heads = {
        "pooler": encoder.pooler_head("roberta.pooler.dense"),
        "mlm": encoder.vocabulary_head("mlm", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "classification": encoder.pooled_head("classification", "classifier.dense", "classifier.out_proj"),
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
        "choice": encoder.pooled_head("choice", "roberta.pooler.dense", "classifier", classes=1),
    }
    architectures = {
        "RobertaModel": ("pooler",),
        "RobertaForMaskedLM": ("mlm",),
        "RobertaForSequenceClassification": ("classification",),
        "RobertaForTokenClassification": ("tagging",),
        "RobertaForQuestionAnswering": ("span",),
        "RobertaForMultipleChoice": ("choice",),
    }
    objective_heads = {"mlm": ("mlm",)}
    tied_weights = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    ignored_patterns = (r"roberta\.embeddings\.position_ids", r"roberta\.pooler\..*")
    zero_patterns = (r"(roberta\.)?embeddings\.token_type_embeddings\.weight",)
    pair_template = "start A end end B end"
    special_token_roles = {"bos_token": "start", "eos_token": "end", "cls_token": "start", "sep_token": "end"}

    @classmethod
    def complete_config(cls, config: Mapping[str, Any], weights: FolderWeights) -> Mapping[str, Any]:
        """A single segment of zeros, as written by fairseq's conversion and our export, counts as none."""
        full_name = f"{TOKEN_TYPES}.weight"
        name = full_name if full_name in weights else full_name.removeprefix(cls.base_prefix)
        no_segments = config.get("type_vocab_size") == 1 and name in weights and not weights[name].any()
        return {**config, "type_vocab_size": 0} if no_segments else config

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Rows up to the padding token's id are not positions."""
        pad_id = config.get("pad_token_id")
        return settings | {
            "max_length": settings["max_length"] - (DEFAULT_PAD_ID if pad_id is None else int(pad_id)) - 1
        }

    @classmethod
    def config_from_settings(cls, settings: Any) -> dict[str, Any]:
        """Rows for the positions, the padding token and those before it; no segments become one of zeros."""
        config = super().config_from_settings(settings)
        return config | {
            "max_position_embeddings": settings.max_length + DEFAULT_PAD_ID + 1,
            "type_vocab_size": settings.segments or 1,
        }

    @classmethod
    def unsupported_settings(cls, settings: Any, head_kinds: Collection[str] = ()) -> list[str]:
        """One segment of zeros counts as none."""
        return super().unsupported_settings(
            settings.model_copy(update={"segments": settings.segments or 1}), head_kinds
        )

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Adds the rows before the first position, and the segment that our runs lack."""
        pad_id = config["pad_token_id"]
        if pad_id is None:
            raise MeristemError("RoBERTa counts positions from the padding token, and this run's tokenizer has none")
        positions = tensors[f"{POSITIONS}.weight"]
        length, width = positions.shape
        config["max_position_embeddings"] = length + pad_id + 1
        padded = positions.new_zeros(length + pad_id + 1, width)
        padded[pad_id + 1 :] = positions
        tensors[f"{POSITIONS}.weight"] = padded
        tensors.setdefault(f"{TOKEN_TYPES}.weight", positions.new_zeros(1, width))
        return super().finalize_export(config, tensors, loaded)
