"""Text generation with masked language models by iterative unmasking: the most confident tokens are fixed each round.

After Ghazvininejad et al. 2019 (mask-predict) with the cosine schedule of Chang et al. 2022: few tokens are fixed
early, when little is known, and most of them late. Fixed tokens do not change again.
"""

# N masks, V vocabulary

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.generation.cancellation import check_cancelled
from meristem.generation.generated_text import GeneratedText, GeneratedTextBuilder, OnText
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import LMKind, vocabulary_head
from meristem.generation.masked_input import hidden_states_at, mask_id
from meristem.generation.sampling import (
    SamplingSettings,
    apply_repetition_penalty,
    ban_tokens,
    check_no_nan,
    filter_logits,
    sample_from_logits,
)
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import generator

MAX_ROUNDS = 24


def generate_by_unmasking(
    model: Model,
    tokenizer: Tokenizer,
    prompts: list[str],
    settings: SamplingSettings,
    *,
    count: int = 1,
    on_text: OnText | None = None,
    lm_kind: LMKind = "masked",
) -> list[list[GeneratedText]]:
    """`count` texts of exactly `max_tokens` tokens for each prompt, unless a stop string ends them.

    `lm_kind` is masked, or generator for ELECTRA's generator.
    """
    if settings.uses_beam_search:
        raise MeristemError(
            "beams: beam search needs a causal model (objective=clm); a masked one generates by unmasking"
        )
    texts_per_prompt = []
    for prompt_index, prompt in enumerate(prompts):
        texts = []
        for copy_index in range(count):
            generated = _unmask_text(model, tokenizer, prompt, settings, copy_index, lm_kind)
            if on_text is not None and generated.text:
                on_text(prompt_index * count + copy_index, generated.text)
            texts.append(generated)
        texts_per_prompt.append(texts)
    return texts_per_prompt


def masks_left(round_index: int, rounds: int, masks: int) -> int:
    """Masks that remain after a round: cos(π/2 · round/rounds) of them, at least one less each round."""
    return min(masks - round_index, math.floor(masks * math.cos(math.pi / 2 * round_index / rounds)))


@torch.inference_mode()
def _unmask_text(
    model: Model, tokenizer: Tokenizer, prompt: str, settings: SamplingSettings, copy_index: int, lm_kind: LMKind
) -> GeneratedText:
    template, num_masks = input_template(model, tokenizer, lm_kind), settings.max_tokens
    max_text_tokens = template.max_text_tokens()
    if num_masks > max_text_tokens:
        raise MeristemError(
            f"max_tokens: this masked model takes at most {max_text_tokens} tokens, got {num_masks}; lower it"
        )
    ids = tokenizer.encode(prompt).ids
    ids = ids[max(0, len(ids) - (max_text_tokens - num_masks)) :]  # a long prompt is truncated at its beginning
    row = torch.from_numpy(template.add_special_tokens(np.append(ids, np.full(num_masks, mask_id(tokenizer)))))
    mask_start = len(template.prefix_ids) + len(ids)
    masked_positions, score = list(range(mask_start, mask_start + num_masks)), 0.0
    rounds = min(MAX_ROUNDS, num_masks)
    for round_index in range(1, rounds + 1):
        check_cancelled()
        uniforms = torch.from_numpy(generator(settings.seed, "unmask", copy_index, round_index).random(num_masks))
        masked_uniforms = uniforms[[position - mask_start for position in masked_positions]]
        tokens, confidences, logprobs = _predict_masks(
            model, tokenizer, row, masked_positions, settings, masked_uniforms, lm_kind
        )
        ranked = confidences.argsort(descending=True, stable=True).tolist()
        revealed = set(ranked[: len(masked_positions) - masks_left(round_index, rounds, num_masks)])
        for index in revealed:
            row[masked_positions[index]] = tokens[index]
            score += float(logprobs[index])
        masked_positions = [position for index, position in enumerate(masked_positions) if index not in revealed]
    builder = GeneratedTextBuilder(tokenizer, ids.tolist(), settings.stop)
    for token in row[mask_start : mask_start + num_masks].tolist():
        if builder.finished is None:
            builder.add_token(token, 0.0, num_masks)
    builder.score = score
    return builder.build()


def _predict_masks(
    model: Model,
    tokenizer: Tokenizer,
    row: Tensor,
    masked_positions: list[int],
    settings: SamplingSettings,
    uniforms: Tensor,
    lm_kind: LMKind,
) -> tuple[Tensor, Tensor, Tensor]:
    """For each masked position a token, its confidence, and its log-probability under the model."""
    positions = torch.tensor(masked_positions)
    raw_logits = (
        vocabulary_head(model, lm_kind)(hidden_states_at(model, [row], positions, torch.zeros_like(positions), lm_kind))
        .float()
        .cpu()
    )
    check_no_nan(raw_logits)
    seen_ids = [row.tolist()] * len(masked_positions) if settings.repetition_penalty != 1.0 else []
    banned_ids = [*tokenizer.special_mask.nonzero()[0].tolist(), *range(tokenizer.vocab_size, raw_logits.shape[-1])]
    logits = ban_tokens(apply_repetition_penalty(raw_logits, seen_ids, settings.repetition_penalty), banned_ids)
    tokens = logits.argmax(-1) if settings.greedy else sample_from_logits(filter_logits(logits, settings), uniforms)
    token_column = tokens[:, None]
    return (
        tokens,
        logits.softmax(-1).gather(1, token_column)[:, 0],
        raw_logits.log_softmax(-1).gather(1, token_column)[:, 0],
    )
