"""Model inputs for reward prompts (a text to continue, a source or an image), laid out as in training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.config.errors import MeristemError
from meristem.data.images import load_named_image
from meristem.generation.source_target_layout import (
    CausalLayout,
    ContinuationLayout,
    EncoderDecoderLayout,
    SourceTargetLayout,
)
from meristem.inputs.batch import Array
from meristem.interfaces.sample import Sample
from meristem.objectives.caption import CaptionObjective, CaptionObjectiveSettings
from meristem.objectives.clm import CLMObjective, CLMObjectiveSettings
from meristem.objectives.seq2seq import Seq2SeqObjective, Seq2SeqObjectiveSettings
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.settings import PolicySettings
from meristem.tokenizers.tokenizer import Tokenizer


def build_layout(settings: PolicySettings, tokenizer: Tokenizer) -> SourceTargetLayout:
    """The layout of prompt and completion in a row, chosen by `policy.generation_mode`."""
    policy, needs_image_size = settings, settings.generation_mode == "image" and settings.image_size is None
    if policy.generation_mode is None or policy.max_length is None or needs_image_size:
        raise MeristemError(
            "policy: policy.generation_mode and policy.max_length are not set yet; they come from the run in from=RUN"
        )
    if policy.generation_mode == "causal":
        clm = CLMObjective(CLMObjectiveSettings.model_validate({}), tokenizer)
        clm.decoder_start_ids = policy.start_ids
        layout_class = CausalLayout if policy.use_delimiter else ContinuationLayout
        return layout_class(clm, tokenizer, policy.max_length, policy.max_new_tokens)
    begin = {"start_tokens": policy.start_ids or ("start",)}
    if policy.generation_mode == "image":
        caption = CaptionObjective(CaptionObjectiveSettings.model_validate(begin), tokenizer)
        return EncoderDecoderLayout(caption, tokenizer, policy.max_length, policy.max_new_tokens, source_key="image")
    return EncoderDecoderLayout(
        Seq2SeqObjective(Seq2SeqObjectiveSettings.model_validate(begin), tokenizer),
        tokenizer,
        policy.max_length,
        policy.max_new_tokens,
    )


def encode_prompts(
    completions: Sequence[PromptCompletion], settings: PolicySettings, tokenizer: Tokenizer
) -> list[Array]:
    """The model input of each prompt: token ids [T], or pixels [side, side, 3]."""
    image_size = settings.image_size
    if settings.generation_mode != "image" or image_size is None:
        return [ids.astype(np.int64) for ids in tokenizer.encode_ids([completion.prompt for completion in completions])]
    images = []
    for completion in completions:
        try:
            images.append(load_named_image(completion.picture, image_size))
        except MeristemError as error:
            raise MeristemError(f"{completion.location_prefix}{error}") from None
    return images


def prompt_from_sample(sample: Sample, max_words: int | None) -> PromptCompletion:
    """A sample as a prompt with an empty completion; with `max_words`, only its first words are the prompt."""
    references, columns = tuple(sample.gold or ()), sample.inputs.get("columns", {})
    prompt, picture = sample.inputs.get("prompt", ""), sample.inputs.get("picture", "")
    if max_words is not None and not picture:
        prompt_words = prompt.split(" ")
        prompt, rest = " ".join(prompt_words[:max_words]), " ".join(prompt_words[max_words:])
        references = references or ((" " + rest,) if rest else ())
    return PromptCompletion(
        prompt=prompt, text="", references=references, columns=columns, location=sample.location, picture=picture
    )
