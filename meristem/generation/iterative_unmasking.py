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
from meristem.generation.generated_text import GeneratedText, OnText, build_text
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import LMKind, vocabulary_head
from meristem.generation.logits_processors import TokenHistory, build_constraints, build_filters, process_logits
from meristem.generation.masked_input import hidden_states_at, mask_id
from meristem.generation.sampling import check_no_nan, sample_tokens
from meristem.generation.settings import SamplingSettings
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
    unmasking = _Unmasking(model, tokenizer, settings.with_seed(), lm_kind)
    texts_per_prompt = []
    for prompt_index, prompt in enumerate(prompts):
        texts = []
        for copy_index in range(count):
            generated = unmasking.generate(prompt, prompt_index, copy_index)
            if on_text is not None and generated.text:
                on_text(prompt_index * count + copy_index, generated.text)
            texts.append(generated)
        texts_per_prompt.append(texts)
    return texts_per_prompt


def masks_left(round_index: int, rounds: int, masks: int) -> int:
    """Masks that remain after a round: cos(π/2 · round/rounds) of them, at least one less each round."""
    return min(masks - round_index, math.floor(masks * math.cos(math.pi / 2 * round_index / rounds)))


class _Unmasking:
    """Iterative unmasking with one model and one kind of head."""

    def __init__(self, model: Model, tokenizer: Tokenizer, settings: SamplingSettings, lm_kind: LMKind) -> None:
        self._model, self._tokenizer, self._settings, self._lm_kind = model, tokenizer, settings, lm_kind
        spare_ids = range(tokenizer.vocab_size, model.backbone.embedding().num_embeddings)
        banned_ids = [*tokenizer.special_mask.nonzero()[0].tolist(), *spare_ids]
        self._constraints = build_constraints(settings, banned_ids, end_id=None)
        self._filters = build_filters(settings)

    @torch.inference_mode()
    def generate(self, prompt: str, prompt_index: int, copy_index: int) -> GeneratedText:
        """One text; its random numbers depend on the seed and the two indices."""
        settings, num_masks = self._settings, self._settings.max_tokens
        template = input_template(self._model, self._tokenizer, self._lm_kind)
        max_text_tokens = template.max_text_tokens()
        if num_masks > max_text_tokens:
            raise MeristemError(
                f"max_tokens: this masked model takes at most {max_text_tokens} tokens, got {num_masks}; lower it"
            )
        ids = self._tokenizer.encode(prompt).ids
        ids = ids[max(0, len(ids) - (max_text_tokens - num_masks)) :]  # a long prompt loses its beginning
        row = torch.from_numpy(
            template.add_special_tokens(np.append(ids, np.full(num_masks, mask_id(self._tokenizer))))
        )
        mask_start = len(template.prefix_ids) + len(ids)
        masked_positions, score = list(range(mask_start, mask_start + num_masks)), 0.0
        rounds = min(MAX_ROUNDS, num_masks)
        for round_index in range(1, rounds + 1):
            check_cancelled()
            rng = generator(settings.seed or 0, "unmask", copy_index, round_index, prompt_index)
            uniforms = torch.from_numpy(rng.random(num_masks))[[at - mask_start for at in masked_positions]]
            tokens, confidences, logprobs = self._predict_masks(row, masked_positions, uniforms)
            ranked = confidences.argsort(descending=True, stable=True).tolist()
            revealed = set(ranked[: len(masked_positions) - masks_left(round_index, rounds, num_masks)])
            for index in revealed:
                row[masked_positions[index]] = tokens[index]
                score += float(logprobs[index])
            masked_positions = [position for index, position in enumerate(masked_positions) if index not in revealed]
        return build_text(
            self._tokenizer,
            ids.tolist(),
            row[mask_start : mask_start + num_masks].tolist(),
            finished="length",
            score=score,
            seed=settings.used_seed,
            stop=settings.stop,
        )

    def _predict_masks(
        self, row: Tensor, masked_positions: list[int], uniforms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For each masked position a token, its confidence, and its log-probability under the model."""
        positions = torch.tensor(masked_positions)
        states = hidden_states_at(self._model, [row], positions, torch.zeros_like(positions), self._lm_kind)
        raw_logits = vocabulary_head(self._model, self._lm_kind)(states).float().cpu()
        check_no_nan(raw_logits)
        histories = [TokenHistory(row.tolist())] * len(masked_positions)
        logits = process_logits(raw_logits, histories, self._constraints)
        if self._settings.greedy:
            tokens = logits.argmax(-1)
        else:
            tokens, _ = sample_tokens(process_logits(logits, histories, self._filters), uniforms)
        token_column = tokens[:, None]
        return (
            tokens,
            logits.softmax(-1).gather(1, token_column)[:, 0],
            raw_logits.log_softmax(-1).gather(1, token_column)[:, 0],
        )
