"""Settings of tasks on encoder states, and the input template that they describe."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.template import InputTemplate
from meristem.interfaces.task import CommonTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["first", "last", "mean", "max"]


class EncoderSettings(CommonTaskSettings):
    """Settings of every task on encoder states."""

    renamed: ClassVar[dict[str, str]] = {
        "way": "backbone_mode",
        "length": "max_length",
        "begin": "decoder_start_ids",
        "framed": "add_special_tokens",
        "lm": "lm_weight",
        "mix": "scalar_mix",
        "network_width": "network_hidden_size",
        "mix_again": "output_scalar_mix",
    }

    needs: ClassVar[SettingConditions] = {
        "decoder_start_ids": (when("backbone_mode", None, "encoder_decoder"),),
        "lm_weight": (when("backbone_mode", None, "causal"),),
        "network_hidden_size": (when("network", "linear", "recurrent"),),
        "output_scalar_mix": (when("network", "linear", "recurrent"),),
        "word_embedding_size": (when("network", "linear", "recurrent"),),
    }

    add_special_tokens: bool = True
    """Add special tokens around texts even if the tokenizer's own file adds none."""
    lm_weight: float = Field(0.0, ge=0)
    """Weight λ of the auxiliary language-model loss, task + λ · LM, for causal models (Radford et al. 2018: 0.5)."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the states before the head."""
    scalar_mix: bool | None = None
    """Use a learned mix of all layers, γ Σ s_j h_j, instead of the last one; on for ELMo if not set."""
    network: Literal["none", "linear", "recurrent"] = "none"
    """The task's own network between the states and the head: none, a dense layer, or a bidirectional LSTM."""
    network_hidden_size: int = Field(256, ge=2, multiple_of=2)
    """Hidden size of that network."""
    output_scalar_mix: bool = False
    """Concatenate a second mix of the layers, with its own weights, to the output of that network (ELMo)."""
    word_embedding_size: int = Field(0, ge=0)
    """Size of the task's own token embedding x, concatenated to the states at the network's input: [x; ELMo]."""


def build_template(settings: EncoderSettings, task_name: str, tokenizer: Tokenizer) -> InputTemplate:
    """The template of a task's texts; settings that cannot be combined are an error."""
    if settings.backbone_mode is None or settings.max_length is None:
        raise MeristemError(
            f"task {task_name}: task.backbone_mode and task.max_length are not set; they come from the model"
        )
    if settings.lm_weight and settings.backbone_mode != "causal":
        raise MeristemError(
            "task.lm_weight: only causal models have an auxiliary language-model loss; this one is "
            f"{settings.backbone_mode}"
        )
    if settings.output_scalar_mix and settings.network == "none":
        raise MeristemError(
            "task.output_scalar_mix: there is no network to concatenate the layers to; set "
            "task.network=recurrent or linear"
        )
    if settings.word_embedding_size and settings.network == "none":
        raise MeristemError(
            "task.word_embedding_size: there is no network to use these embeddings; set task.network=recurrent or "
            "linear"
        )
    return InputTemplate(
        tokenizer,
        settings.backbone_mode,
        settings.max_length,
        decoder_start_ids=settings.decoder_start_ids,
        add_special_tokens=settings.add_special_tokens,
    )
