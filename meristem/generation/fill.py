"""Mask filling: the most probable tokens at each [MASK] of a text (fill-mask)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.generation.bilm import SpelledText, bilm_gap_probs
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import LMKind, lm_kind_for, vocabulary_head
from meristem.generation.infill import infill_gap_probs
from meristem.generation.masked_input import hidden_states_at, mask_id
from meristem.generation.permutation import permutation_gap_probs
from meristem.generation.token_scores import forward_passes
from meristem.inputs.char_ids import surface_forms
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Encoding, Tokenizer
from meristem.utils.result_tables import Record, Tabular

MaskIndex = tuple[int, int]
"""(text index, mask index within the text)."""

MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""


@dataclass(frozen=True, kw_only=True)
class FillCandidate:
    """A candidate token for a mask."""

    token: str
    probability: float
    text: str
    """The whole text with the token in place; other masks remain."""


@dataclass(frozen=True, kw_only=True)
class FilledMask(Tabular):
    """One mask and its candidates, most probable first."""

    mask: int
    """Index of the mask in the text, from 0."""
    candidates: tuple[FillCandidate, ...]

    def records(self) -> list[Record]:
        """One row per candidate."""
        return [
            {"mask": self.mask, "token": candidate.token, "probability": candidate.probability, "text": candidate.text}
            for candidate in self.candidates
        ]

    def to_dict(self) -> dict[str, Any]:
        """The mask as JSON data, as the command line and the server give it."""
        return {
            "mask": self.mask,
            "candidates": [
                {"token": candidate.token, "score": candidate.probability, "sequence": candidate.text}
                for candidate in self.candidates
            ],
        }


def fill(model: Model, tokenizer: Tokenizer, text: str, *, top: int = 5) -> list[FilledMask]:
    """The most probable tokens of each mask while the other masks stay masked; special tokens are left out."""
    lm_kind_for(model, "fill")  # a model that cannot fill is rejected before the text is searched for masks
    return fill_many(model, tokenizer, [parse_masked_text(tokenizer, text)], top=top)[0]


@dataclass(frozen=True, kw_only=True)
class MaskedText:
    """A tokenized text with masks."""

    text: str
    encoding: Encoding
    mask_positions: tuple[int, ...]
    """Token positions of the masks."""


def parse_masked_text(tokenizer: Tokenizer, text: str) -> MaskedText:
    """Tokenize a text and find its masks; a text without a mask is an error."""
    encoding = tokenizer.encode(text, special=True)
    positions = np.flatnonzero(encoding.ids == mask_id(tokenizer)).tolist()
    if not positions:
        raise MeristemError(
            "there is no mask in the text: write [MASK] where a word is missing, as in "
            '"The capital of France is [MASK]."'
        )
    return MaskedText(text=text, encoding=encoding, mask_positions=tuple(positions))


@torch.inference_mode()
def fill_many(
    model: Model, tokenizer: Tokenizer, texts: Sequence[MaskedText], *, top: int = 5
) -> list[list[FilledMask]]:
    """The same for several texts, batched by length."""
    if top < 1:
        raise MeristemError(f"top: expected at least 1 candidate, got {top}")
    specials, num_candidates = torch.from_numpy(tokenizer.special_mask), min(top, int((~tokenizer.special_mask).sum()))
    filled: list[list[FilledMask]] = [
        [FilledMask(mask=mask, candidates=()) for mask in range(len(masked_text.mask_positions))]
        for masked_text in texts
    ]
    for batch_masks, probabilities in _mask_probabilities(model, tokenizer, texts, lm_kind_for(model, "fill")):
        top_tokens = probabilities[:, : tokenizer.vocab_size].masked_fill(specials, -1.0).topk(num_candidates)
        batch_results = zip(batch_masks, top_tokens.indices.tolist(), top_tokens.values.tolist(), strict=True)
        for (number, mask), tokens, probs in batch_results:
            candidates = tuple(
                FillCandidate(
                    token=tokenizer.token_text(token),
                    probability=prob,
                    text=_replace_mask(tokenizer, texts[number], mask, token),
                )
                for token, prob in zip(tokens, probs, strict=True)
            )
            filled[number][mask] = FilledMask(mask=mask, candidates=candidates)
    return filled


def _mask_probabilities(
    model: Model, tokenizer: Tokenizer, texts: Sequence[MaskedText], lm_kind: LMKind
) -> Iterator[tuple[list[MaskIndex], Tensor]]:
    """Batches of masks, texts of similar length together, with [masks, V] token probabilities."""
    masks = [(number, mask) for number, text in enumerate(texts) for mask in range(len(text.mask_positions))]
    if lm_kind == "source":  # a decoder fills from left to right
        gaps_by_text = [(text.encoding.ids.astype(np.int64), text.mask_positions) for text in texts]
        text_probs = infill_gap_probs(model, tokenizer, gaps_by_text)
        for number, gap_probs in enumerate(text_probs):
            yield [(number, mask) for mask in range(len(gap_probs))], gap_probs
        return
    for batch in forward_passes([len(texts[number].encoding.ids) for number, _ in masks], MAX_TOKENS_PER_PASS):
        batch_masks = [masks[index] for index in batch]
        gaps = [(texts[number], texts[number].mask_positions[mask]) for number, mask in batch_masks]
        yield batch_masks, _gap_probabilities(model, tokenizer, gaps, lm_kind)


def _gap_probabilities(
    model: Model, tokenizer: Tokenizer, gaps: Sequence[tuple[MaskedText, int]], lm_kind: LMKind
) -> Tensor:
    """[gaps, V] probabilities; a text longer than the model is truncated to a window around each mask."""
    if lm_kind == "permutation":
        ids_and_positions = [(masked_text.encoding.ids.astype(np.int64), position) for masked_text, position in gaps]
        return permutation_gap_probs(model, tokenizer, ids_and_positions, mask_id(tokenizer))
    template = input_template(model, tokenizer, lm_kind)
    if lm_kind == "bilm":
        return bilm_gap_probs(model, [_spelled_window(tokenizer, template, *gap) for gap in gaps])
    rows: dict[tuple[int, int, int], int] = {}  # a window with several masks takes one row
    windows, row_positions, row_indices = list[Tensor](), list[int](), list[int]()
    for masked_text, position in gaps:
        start, stop = template.window_around(len(masked_text.encoding.ids), position)
        if (key := (id(masked_text), start, stop)) not in rows:
            rows[key] = len(windows)
            windows.append(torch.from_numpy(template.add_special_tokens(masked_text.encoding.ids[start:stop])))
        row_positions.append(position - start + len(template.prefix_ids))
        row_indices.append(rows[key])
    states = hidden_states_at(model, windows, torch.tensor(row_positions), torch.tensor(row_indices), lm_kind)
    logits: Tensor = vocabulary_head(model, lm_kind)(states)
    return logits.float().softmax(-1).cpu()


def _spelled_window(
    tokenizer: Tokenizer, template: InputTemplate, masked_text: MaskedText, position: int
) -> tuple[SpelledText, int]:
    """Words and characters around a mask with start and end tokens; other masks are unknown words."""
    start, stop = template.window_around(len(masked_text.encoding.ids), position)
    words = surface_forms(masked_text.text, masked_text.encoding.offsets[start:stop])
    ids = masked_text.encoding.ids[start:stop].astype(np.int64)
    return SpelledText.from_ids(tokenizer, ids, words), position - start + len(template.prefix_ids)


def _replace_mask(tokenizer: Tokenizer, masked_text: MaskedText, mask: int, token_id: int) -> str:
    """The text with a token in place of a mask, spaced as the tokenizer decodes it after its left neighbour."""
    text, encoding, position = masked_text.text, masked_text.encoding, masked_text.mask_positions[mask]
    stream = tokenizer.stream_decoder(skip_special=False)
    if position:
        stream.push(int(encoding.ids[position - 1]))
    left = int(encoding.offsets[position - 1, 1]) if position else 0
    return text[:left] + stream.push(token_id) + stream.finish() + text[int(encoding.offsets[position, 1]) :]
