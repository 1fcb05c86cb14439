"""XLNet's config entries and weight map for transformers: projections as [hidden, heads, head_dim]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.settings import Settings
from meristem.interop.model_type import ACTIVATIONS, SPAN_HEAD, TAGGING_HEAD, ConfigEntry, HeadMapping, ModelType
from meristem.interop.weight_map import SPLIT_HEADS, Reshape, WeightRule
from meristem.interop.weights_folder import FolderWeights
from meristem.tokenizers.tokenizer import Tokenizer

LAYER_RULES = (
    WeightRule("backbone.stack.layers.{}.attention.query.weight", "transformer.layer.{}.rel_attn.q", SPLIT_HEADS),
    WeightRule(
        "backbone.stack.layers.{}.attention.key_value.weight",
        ("transformer.layer.{}.rel_attn.k", "transformer.layer.{}.rel_attn.v"),
        SPLIT_HEADS,
    ),
    WeightRule("backbone.stack.layers.{}.attention.relative.weight", "transformer.layer.{}.rel_attn.r", SPLIT_HEADS),
    WeightRule(
        "backbone.stack.layers.{}.attention.output.weight",
        "transformer.layer.{}.rel_attn.o",
        Reshape(theirs=("hidden_size", "heads", -1), ours=("hidden_size", -1)),
    ),
    WeightRule("backbone.stack.layers.{}.attention.segments", "transformer.layer.{}.rel_attn.seg_embed"),
    WeightRule("backbone.stack.layers.{}.attention.biases.content", "transformer.layer.{}.rel_attn.r_w_bias"),
    WeightRule("backbone.stack.layers.{}.attention.biases.distance", "transformer.layer.{}.rel_attn.r_r_bias"),
    WeightRule("backbone.stack.layers.{}.attention.biases.segment", "transformer.layer.{}.rel_attn.r_s_bias"),
    WeightRule("backbone.stack.layers.{}.attention_norm", "transformer.layer.{}.rel_attn.layer_norm"),
    WeightRule("backbone.stack.layers.{}.feed_forward.widen", "transformer.layer.{}.ff.layer_1"),
    WeightRule("backbone.stack.layers.{}.feed_forward.narrow", "transformer.layer.{}.ff.layer_2"),
    WeightRule("backbone.stack.layers.{}.feed_forward_norm", "transformer.layer.{}.ff.layer_norm"),
)
TASK_HEADS = frozenset({"classification", "tagging", "span", "choice"})


def summary_rules(name: str) -> tuple[WeightRule, ...]:
    """The two linear layers of a head that reads the summary token."""
    return (
        WeightRule(f"heads.{name}.dense", "sequence_summary.summary"),
        WeightRule(f"heads.{name}.score", "logits_proj"),
    )


class XLNetModelType(ModelType):
    """Post-norm, relative positions, relative segment encodings in every layer."""

    name = "xlnet"
    family = "xlnet"
    config_entries = (
        ConfigEntry("layers", "n_layer", 24),
        ConfigEntry("hidden_size", "d_model", 1024),
        ConfigEntry("heads", "n_head", 16),
        ConfigEntry("ffn_size", "d_inner", 4096),
        ConfigEntry("max_length", "n_positions", 512),  # XLNet has no maximum length and keeps unknown keys
        ConfigEntry("activation", "ff_activation", "gelu", ACTIVATIONS),
        ConfigEntry("dropout", "dropout", 0.1),
        ConfigEntry("norm_epsilon", "layer_norm_eps", 1e-12),
    )
    fixed_settings = {"norm_position": "post", "segments": True}
    required_config = {
        "untie_r": True,
        "attn_type": "bi",
        "same_length": False,
        "summary_type": "last",
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "tie_word_embeddings": True,
    }
    training_settings = frozenset({"bidirectional_data", "eval_memory_length"})
    base_prefix = "transformer."
    body_rules = (
        *LAYER_RULES,
        WeightRule("backbone.tokens", "transformer.word_embedding"),
        WeightRule("backbone.query", "transformer.mask_emb", Reshape(theirs=(1, 1, -1), ours=(-1,))),
    )
    heads = {
        "plm": HeadMapping("vocabulary", (WeightRule("heads.plm.bias", "lm_loss.bias"),)),
        "classification": HeadMapping("pooled", summary_rules("classification"), classes=0),
        "tagging": TAGGING_HEAD,
        "span": SPAN_HEAD,
        "choice": HeadMapping("pooled", summary_rules("choice"), classes=1),
    }
    architectures = {
        "XLNetModel": (),
        "XLNetLMHeadModel": ("plm",),
        "XLNetForSequenceClassification": ("classification",),
        "XLNetForTokenClassification": ("tagging",),
        "XLNetForQuestionAnsweringSimple": ("span",),
        "XLNetForMultipleChoice": ("choice",),
    }
    objective_heads = {"plm": ("plm",)}
    tied_weights = {"lm_loss.weight": "transformer.word_embedding.weight"}
    single_template, pair_template = "A end start:2", "A end B end start:2"
    model_input_names = ("input_ids", "token_type_ids", "attention_mask")
    padding_side = "left"

    @classmethod
    def settings_from_config(cls, config: Mapping[str, Any], source: str = "config.json") -> Settings:
        """Whether the summary token is the first or the last follows from the tokenizer's template."""
        adjusted_config = {**config, "summary_type": "last"} if config.get("summary_type") == "first" else config
        return super().settings_from_config(adjusted_config, source)

    @classmethod
    def complete_config(cls, config: Mapping[str, Any], weights: FolderWeights) -> Mapping[str, Any]:
        """A summary at the first token is only possible if the start token comes first."""
        if config.get("summary_type") == "first" and not _starts_with_start_token(Tokenizer.load(weights.folder)):
            config_path = weights.folder / "config.json"
            raise MeristemError(f"{config_path}: summary_type='first', and the tokenizer puts no start token in front")
        return config

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Task runs trained here have the start token, and so the summary, first.

        A task encodes each text separately; memory among the outputs would keep pipelines from batching.
        """
        if _has_task(loaded):
            config["summary_type"] = "first" if _summary_is_first(loaded) else "last"
            config["use_mems_eval"] = False
        return super().finalize_export(config, tensors, loaded)

    @classmethod
    def run_padding_side(cls, loaded: LoadedRun) -> str:
        """The side opposite to the summary token."""
        return "right" if _has_task(loaded) and _summary_is_first(loaded) else cls.padding_side

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """No memory is null there and 0 here; unlimited distances are −1 there and None here."""
        memory, clamp = config.get("mem_len", 512) or 0, config.get("clamp_len", -1)
        settings |= {"memory_length": memory, "clamp_distance": clamp if clamp and clamp > 0 else None}
        return settings | {"bidirectional_data": bool(memory and config.get("bi_data"))}

    @classmethod
    def config_from_settings(cls, settings: Any) -> dict[str, Any]:
        """The inverse; `bi_data` would reverse half of every batch, so it is only used in training here."""
        return super().config_from_settings(settings) | {
            "mem_len": settings.memory_length or None,
            "clamp_len": settings.clamp_distance or -1,
        }


def _has_task(loaded: LoadedRun) -> bool:
    """Whether the run has a task head, trained here or imported."""
    return loaded.recipe.tuned_task is not None or bool(TASK_HEADS & set(loaded.recipe.heads))


def _summary_is_first(loaded: LoadedRun) -> bool:
    """Whether texts of the run's task begin with the start token; for an import its tokenizer decides."""
    return _starts_with_start_token(loaded.tokenizer) and (
        loaded.recipe.tuned_task is not None or loaded.tokenizer.single_template is not None
    )


def _starts_with_start_token(tokenizer: Tokenizer) -> bool:
    """Whether the start token comes before a text; also if the tokenizer has no template of its own."""
    return tokenizer.start is not None and (
        tokenizer.single_template is None or tokenizer.start in tokenizer.single_template[0]
    )
