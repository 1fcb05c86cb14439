"""Mask filling with a denoising encoder-decoder: the decoder's next-token distribution at the gap.

BART (masks) generates the whole text again: the decoder gets the text before the gap, and the next token is the
candidate. T5 (sentinels) generates each gap after its sentinel: the candidate is the first token there.
Earlier gaps of a text are filled with their most probable token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import IntArray
from meristem.generation.generation_inputs import GenerationInputs, collate_inputs, input_template
from meristem.generation.head_selection import vocabulary_head
from meristem.generation.token_scores import forward_passes
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""


class InfillingText:
    """A text whose gaps are filled from left to right."""

    def __init__(self, model: Model, tokenizer: Tokenizer, ids: IntArray, gap_positions: Sequence[int]) -> None:
        self._gap_positions, self._max_length = list(gap_positions), model.backbone.max_length
        self._ids, self._filled_ids = ids.astype(np.int64), list[int]()
        self._template = input_template(model, tokenizer, "source")
        self._sentinels = tokenizer.sentinels if "sentinels" in model.source_kinds else ()
        if self._sentinels and len(gap_positions) > len(self._sentinels):
            raise MeristemError(
                f"{len(gap_positions)} masks, but this tokenizer has {len(self._sentinels)} sentinels; use fewer masks"
            )

    def inputs_for_gap(self, gap_index: int) -> GenerationInputs:
        """Encoder and decoder inputs such that the token of this gap is the next token."""
        position = self._gap_positions[gap_index]
        first, last = self._template.window_around(len(self._ids), position)
        gaps = [index for index, gap_position in enumerate(self._gap_positions) if first <= gap_position < last]
        gap_offsets = [self._gap_positions[index] - first for index in gaps]
        source, num_earlier = self._ids[first:last].copy(), sum(index < gap_index for index in gaps)
        filled_ids = [self._filled_ids[index] for index in gaps[:num_earlier]]
        if self._sentinels:
            source[gap_offsets] = self._sentinels[: len(gaps)]
            filled_gaps = zip(self._sentinels[:num_earlier], filled_ids, strict=True)
            decoder_ids = [*(token for pair in filled_gaps for token in pair), self._sentinels[num_earlier]]
        else:
            before_gap = self._ids[first:position].copy()
            before_gap[gap_offsets[:num_earlier]] = filled_ids
            decoder_ids = before_gap.tolist()
        prompt = [*self._template.decoder_start_ids, *decoder_ids]
        source_ids = self._template.source_ids(source)
        return GenerationInputs(prompt_ids=prompt[: self._max_length], inputs={"source": torch.from_numpy(source_ids)})

    def add_filled_token(self, token_id: int) -> None:
        """Record the most probable token of the current gap."""
        self._filled_ids.append(token_id)

    def __len__(self) -> int:
        return len(self._gap_positions)


@torch.inference_mode()
def infill_gap_probs(
    model: Model, tokenizer: Tokenizer, texts: Sequence[tuple[IntArray, Sequence[int]]]
) -> list[Tensor]:
    """Per text [gaps, V] probabilities; the first gaps of all texts are batched, then the second ones, …"""
    infilling_texts = [InfillingText(model, tokenizer, ids, positions) for ids, positions in texts]
    ordinary_ids = torch.from_numpy(np.flatnonzero(~tokenizer.special_mask))
    gap_probs: list[list[Tensor]] = [[] for _ in infilling_texts]
    for gap_index in range(max(map(len, infilling_texts), default=0)):
        text_indices = [index for index, text in enumerate(infilling_texts) if gap_index < len(text)]
        inputs = [infilling_texts[text_index].inputs_for_gap(gap_index) for text_index in text_indices]
        for batch in forward_passes([item.num_tokens for item in inputs], MAX_TOKENS_PER_PASS):
            batch_probs = _next_token_probs(model, [inputs[index] for index in batch])
            for index, probabilities in zip(batch, batch_probs, strict=True):
                gap_probs[text_indices[index]].append(probabilities)
                best_id = int(ordinary_ids[probabilities[ordinary_ids].argmax()])
                infilling_texts[text_indices[index]].add_filled_token(best_id)
    return [torch.stack(text_probs) for text_probs in gap_probs]


def _next_token_probs(model: Model, items: Sequence[GenerationInputs]) -> Tensor:
    """[B, V] probabilities of the next token of each input."""
    tokens, sizes, inputs = collate_inputs(items, model.device)
    hidden = model.backbone(tokens=tokens, **inputs)
    last_positions = torch.arange(len(items)) * tokens.shape[1] + sizes - 1
    logits: Tensor = vocabulary_head(model, "source")(hidden.select(last_positions.to(model.device)))
    return logits.float().softmax(-1).cpu()
