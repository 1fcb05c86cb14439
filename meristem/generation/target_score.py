"""Log-probability of a target given its source, for encoder-decoders: Σ log p(y_t | y_<t, source), end token included.

The source is a text or, for captioners, an image. A denoising model (BART, T5) also scores a text alone: as the
infilling of a single mask or sentinel that stands for the whole text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import IntArray
from meristem.generation.generation_inputs import (
    GenerationInputs,
    Prompt,
    collate_inputs,
    encoder_inputs,
    input_template,
)
from meristem.generation.head_selection import DENOISING_SOURCES, vocabulary_head
from meristem.generation.masked_input import mask_id
from meristem.generation.token_scores import TokenScores, forward_passes, score_token_rows
from meristem.interfaces.backbone import Model
from meristem.tokenizers.special_tokens import MASK
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class ScoringTarget:
    """A target, with the decoder and encoder inputs it is predicted from."""

    inputs: GenerationInputs
    ids: IntArray
    """The predicted tokens."""


def build_target(
    model: Model, tokenizer: Tokenizer, source: Prompt, text: str, *, score_end: bool = True
) -> ScoringTarget:
    """A source and its target as in training; without `score_end` only the target's own tokens are predicted."""
    source_tensors = encoder_inputs(model, tokenizer, source, allow_empty=True)
    template = input_template(model, tokenizer, "source")
    ids, start_ids = tokenizer.encode(text).ids.astype(np.int64), list(template.decoder_start_ids)
    prefix_ids, suffix_ids = template.target_special_ids(denoising=bool(model.source_kinds & DENOISING_SOURCES))
    if "sentinels" in model.source_kinds and isinstance(source, str) and source.count(MASK) == 1:
        start_ids = [*start_ids, tokenizer.sentinels[0]]  # the target takes the place of the one gap
    max_tokens = (
        model.backbone.max_length + 1 - len(start_ids) - len(prefix_ids) - (len(suffix_ids) if score_end else 0)
    )
    if len(ids) > max_tokens:
        raise MeristemError(
            f"a target has {len(ids)} tokens, and this model generates at most {max_tokens}; shorten it"
        )
    if not score_end:
        return ScoringTarget(GenerationInputs(prompt_ids=[*start_ids, *prefix_ids], inputs=source_tensors), ids)
    return ScoringTarget(
        GenerationInputs(prompt_ids=start_ids, inputs=source_tensors),
        np.concatenate([prefix_ids, ids, suffix_ids]).astype(np.int64),
    )


def build_infilling_target(model: Model, tokenizer: Tokenizer, ids: IntArray, gap_start: int = 0) -> ScoringTarget:
    """A text as the infilling of one gap from `gap_start` to its end, by a denoising model.

    BART's decoder generates the tokens before the gap again, so they are inputs; T5's starts with the gap's sentinel.
    """
    template, uses_sentinels = input_template(model, tokenizer, "source"), "sentinels" in model.source_kinds
    known_ids = [tokenizer.sentinels[0]] if uses_sentinels else ids[:gap_start].tolist()
    max_tokens = model.backbone.max_length + 1 - len(template.decoder_start_ids) - len(known_ids)
    if len(ids) - gap_start > max_tokens:
        raise MeristemError(
            f"a text has {len(ids)} tokens, and this model scores at most {max_tokens + gap_start} at once; shorten it"
        )
    gap_id = tokenizer.sentinels[0] if uses_sentinels else mask_id(tokenizer)
    source_ids = template.source_ids(np.append(ids[:gap_start], gap_id))
    return ScoringTarget(
        GenerationInputs(
            prompt_ids=[*template.decoder_start_ids, *known_ids], inputs={"source": torch.from_numpy(source_ids)}
        ),
        ids[gap_start:],
    )


def score_targets(model: Model, targets: Sequence[ScoringTarget]) -> list[TokenScores]:
    """Scores of each target's tokens, batched by length."""
    scores = [TokenScores.zeros(len(target.ids)) for target in targets]
    sizes = [target.inputs.num_tokens + len(target.ids) if len(target.ids) else 0 for target in targets]
    for batch in forward_passes(sizes):
        _score_batch(model, [targets[index] for index in batch], [scores[index] for index in batch])
    return scores


@torch.inference_mode()
def _score_batch(model: Model, targets: Sequence[ScoringTarget], scores: Sequence[TokenScores]) -> None:
    """One forward pass: each target after its start tokens, each token predicted from the one before it."""
    items = [
        GenerationInputs(prompt_ids=[*target.inputs.prompt_ids, *target.ids[:-1].tolist()], inputs=target.inputs.inputs)
        for target in targets
    ]
    tokens, _, inputs = collate_inputs(items, model.device)
    hidden = model.backbone(tokens=tokens, **inputs)
    sizes = [len(target.ids) for target in targets]
    positions = [
        row * tokens.shape[1] + len(target.inputs.prompt_ids) - 1 + torch.arange(len(target.ids))
        for row, target in enumerate(targets)
    ]
    target_ids = torch.from_numpy(np.concatenate([target.ids for target in targets])).to(model.device)
    states = hidden.select(torch.cat(positions).to(model.device))
    row_scores = score_token_rows(vocabulary_head(model, "source"), states, target_ids, sizes)
    for target, (logprobs, best) in zip(scores, row_scores, strict=True):
        target.put(0, logprobs, best)
