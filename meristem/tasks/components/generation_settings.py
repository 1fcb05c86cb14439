"""Settings of text generation tasks, and the source-target layout and decoding that they describe."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.generation.settings import SamplingSettings
from meristem.generation.source_target_layout import CausalLayout, EncoderDecoderLayout, SourceTargetLayout
from meristem.inputs.template import InputTemplate
from meristem.interfaces.task import CommonTaskSettings
from meristem.objectives.caption import CaptionObjective, CaptionObjectiveSettings
from meristem.objectives.clm import CLMObjective, CLMObjectiveSettings
from meristem.objectives.seq2seq import Seq2SeqObjective, Seq2SeqObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer

GENERATION_MODES = frozenset({"encoder_decoder", "causal"})
"""Capabilities of which a backbone needs one to generate a target from a source."""


class GenerationSettings(CommonTaskSettings):
    """Settings of every text generation task."""

    renamed: ClassVar[dict[str, str]] = {
        "way": "backbone_mode",
        "length": "max_length",
        "begin": "decoder_start_ids",
        "lm": "lm_weight",
        "no_repeat": "no_repeat_ngram_size",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "num_beams": "beams",
        "max_new_tokens": "max_tokens",
        "min_new_tokens": "min_tokens",
    }

    needs: ClassVar[SettingConditions] = {
        "decoder_start_ids": (when("backbone_mode", None, "encoder_decoder"),),
        "lm_weight": (when("backbone_mode", None, "causal"),),
        "length_penalty": (when("beams", above=1),),
    }

    backbone_mode: Literal["encoder_decoder", "causal"] | None = None
    """Encoder-decoder, or source and target in one causal sequence; that of the model family if not set."""
    max_length: int | None = Field(None, ge=4)
    """Maximum tokens of a source and of a target (causal: of both); the model's maximum length if not set."""
    decoder_start_ids: tuple[int, ...] = ()
    """Decoder start tokens; as in pretraining if not set."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Label smoothing ε (Szegedy et al. 2016)."""
    lm_weight: float = Field(0.0, ge=0)
    """Weight λ of the auxiliary LM loss over source and target, for causal models (Radford et al. 2018: 0.5)."""
    beams: int = Field(4, ge=1)
    """Beam size; 1 is greedy decoding."""
    length_penalty: float = Field(1.0, ge=0)
    """Beams are ranked by log-probability / tokens ** length_penalty; 0 favours short texts."""
    max_tokens: int = Field(128, ge=1)
    """Maximum tokens of a generated text; a causal model keeps half of its length for the source."""
    min_tokens: int = Field(0, ge=0)
    """Minimum tokens of a generated text."""
    no_repeat_ngram_size: int | None = Field(None, ge=1)
    """Size of n-grams that may not repeat in a generated text: 3 forbids repeated trigrams."""

    def sampling(self, max_tokens: int) -> SamplingSettings:
        """Greedy decoding or beam search, of at most so many tokens."""
        return SamplingSettings.model_validate(
            {
                "beams": self.beams,
                "length_penalty": self.length_penalty,
                "min_tokens": self.min_tokens,
                "no_repeat_ngram_size": self.no_repeat_ngram_size,
                "greedy": self.beams == 1,
                "early_stopping": True,
                "max_tokens": max_tokens,
            }
        )

    def target_settings(self) -> dict[str, object]:
        """Settings of the pretraining objective of an encoder-decoder: label smoothing and decoder start tokens."""
        return {"label_smoothing": self.label_smoothing, "start_tokens": self.decoder_start_ids or ("start",)}


def _max_length(settings: GenerationSettings, task_name: str) -> int:
    """The maximum length; settings that cannot be combined are an error."""
    if settings.backbone_mode is None or settings.max_length is None:
        raise MeristemError(
            f"task {task_name}: task.backbone_mode and task.max_length are not set; they come from the model"
        )
    if settings.lm_weight and settings.backbone_mode != "causal":
        raise MeristemError(
            "task.lm_weight: only causal models have a language-model loss over the source; this one is "
            f"{settings.backbone_mode}"
        )
    return settings.max_length


def build_text_layout(
    settings: GenerationSettings, task_name: str, tokenizer: Tokenizer
) -> tuple[InputTemplate, SourceTargetLayout]:
    """The template of sources, and the layout of pairs of texts, with the pretraining objective of that layout."""
    max_length, max_tokens = _max_length(settings, task_name), settings.max_tokens
    is_causal = settings.backbone_mode == "causal"
    template = InputTemplate(
        tokenizer,
        "causal" if is_causal else "encoder_decoder",
        max_length,
        decoder_start_ids=settings.decoder_start_ids,
        closes_cut_texts=is_causal,
    )
    if is_causal:
        clm = CLMObjectiveSettings.model_validate({"label_smoothing": settings.label_smoothing})
        return template, CausalLayout(CLMObjective(clm, tokenizer), tokenizer, max_length, max_tokens)
    seq2seq = Seq2SeqObjectiveSettings.model_validate(settings.target_settings())
    return template, EncoderDecoderLayout(Seq2SeqObjective(seq2seq, tokenizer), tokenizer, max_length, max_tokens)


def build_image_layout(settings: GenerationSettings, task_name: str, tokenizer: Tokenizer) -> SourceTargetLayout:
    """The layout of an image and its caption."""
    max_length = _max_length(settings, task_name)
    caption = CaptionObjectiveSettings.model_validate(settings.target_settings())
    objective = CaptionObjective(caption, tokenizer)
    return EncoderDecoderLayout(objective, tokenizer, max_length, settings.max_tokens, source_key="image")
