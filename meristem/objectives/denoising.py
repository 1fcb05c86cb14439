"""Denoising: BART's text infilling, deletion, permutation and rotation, and T5's span corruption."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array, RngFactory, Row
from meristem.interfaces.objective import ViewSpec
from meristem.objectives._sequence_target import SequenceTargetObjective, SequenceTargetSettings
from meristem.tokenizers.tokenizer import Tokenizer

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


NOISE_SETTINGS = ("permute_rate", "rotate_rate", "delete_rate", "mask_rate", "infill_rate")
"""Rates of BART's noise functions."""


class DenoisingObjectiveSettings(SequenceTargetSettings):
    """Settings of the corruption; several noise functions apply in the order given here."""

    renamed: ClassVar[dict[str, str]] = {
        "span_mean": "mean_span_length",
        "corrupt_rate": "corruption_rate",
    }

    needs: ClassVar[SettingConditions] = {
        **dict.fromkeys(NOISE_SETTINGS, (when("kind", "noise"),)),
        "mean_span_length": (when("kind", "spans") | when("infill_rate", above=0),),
        "corruption_rate": (when("kind", "spans"),),
    }

    name: Literal["denoising"] = "denoising"
    """The objective's name."""
    kind: Literal["noise", "spans"] = "noise"
    """noise: the target is the whole text (BART); spans: the target is only the spans behind sentinels (T5)."""
    permute_rate: float = Field(1.0, ge=0, le=1)
    """Sentence permutation: share of documents whose sentences are shuffled."""
    rotate_rate: float = Field(0.0, ge=0, le=1)
    """Document rotation: share of documents rotated to start at a random token."""
    delete_rate: float = Field(0.0, ge=0, lt=1)
    """Token deletion: share of tokens deleted."""
    mask_rate: float = Field(0.0, ge=0, lt=1)
    """Token masking: share of tokens replaced by one mask each."""
    infill_rate: float = Field(0.3, ge=0, lt=1)
    """Text infilling: share of tokens in spans replaced by one mask per span; an empty span inserts a mask."""
    mean_span_length: float = Field(3.0, gt=0)
    """Mean span length: λ of BART's Poisson distribution, μ of T5's spans."""
    corruption_rate: float = Field(0.15, gt=0, lt=1)
    """Span corruption: share of tokens in T5's spans."""

    @model_validator(mode="after")
    def _check_noises(self) -> Self:
        if self.kind == "spans" and self.mean_span_length < 1:
            raise ValueError("mean_span_length: must be at least 1 with kind=spans")
        noises = (self.permute_rate, self.rotate_rate, self.delete_rate, self.mask_rate, self.infill_rate)
        if self.kind == "noise" and not any(noises):
            raise ValueError(
                "every noise is off, so the model would only learn to copy; set one of " + ", ".join(NOISE_SETTINGS)
            )
        return self


def permute_sentences(size: int, sentences: Ints, rng: Generator) -> Ints:
    """Positions of a document with its sentences in uniformly random order."""
    sentence_positions = np.split(np.arange(size), sentences[(sentences > 0) & (sentences < size)])
    return np.concatenate([sentence_positions[index] for index in rng.permutation(len(sentence_positions))])


def rotate_document(size: int, rng: Generator) -> Ints:
    """Positions of a document rotated to start at a random one."""
    return np.roll(np.arange(size), -int(rng.integers(size)))


def sample_positions(allowed: Bools, rate: float, rng: Generator) -> Bools:
    """Mask of a uniformly random share of the allowed positions; rounding is random too, so that means are exact."""
    positions = np.flatnonzero(allowed)
    num_selected = min(len(positions), int(rate * len(positions) + rng.random()))
    out = np.zeros(len(allowed), bool)
    out[rng.choice(positions, num_selected, replace=False)] = True
    return out


def poisson_lengths(total: int, mean: float, rng: Generator) -> Ints:
    """Poisson span lengths, zeros included, that add up to `total`; the last is cut if it overshoots."""
    spans = np.zeros(0, np.int64)
    while spans.sum() < total:
        spans = np.concatenate([spans, rng.poisson(mean, 8 + int(2 * total / mean))])
    if not total:
        return spans
    last = int(np.searchsorted(np.cumsum(spans), total))
    spans = spans[: last + 1]
    spans[-1] -= spans.sum() - total
    return spans


def infill_spans(tokens: Array, allowed: Bools, mask_id: int, rate: float, mean: float, rng: Generator) -> Array:
    """Text infilling: spans of Poisson length become one mask each, empty spans insert one; special tokens are kept.

    The remaining tokens are distributed uniformly before, between and after the spans.
    """
    positions = np.flatnonzero(allowed)
    spans = poisson_lengths(int(rate * len(positions) + rng.random()), mean, rng)
    max_empty = int((spans - 1).clip(0).sum())
    spans = spans[(spans > 0) | (np.cumsum(spans == 0) <= max_empty)]  # the source is never longer than the text
    num_kept = len(positions) - int(spans.sum())
    spans = rng.permutation(spans)
    kept_before = np.sort(rng.integers(num_kept + 1, size=len(spans)))  # number of kept tokens before each span
    starts = kept_before + np.cumsum(spans) - spans  # indices into `positions`
    covered = np.zeros(len(positions) + 1, np.int64)
    np.add.at(covered, starts, spans > 0)
    np.add.at(covered, starts + spans, -(spans > 0).astype(np.int64))
    removed = np.zeros(len(tokens), bool)
    removed[positions[np.cumsum(covered)[:-1] > 0]] = True
    mask_positions = np.append(positions, len(tokens))[starts]  # each mask is inserted before this position
    keys = np.concatenate([mask_positions - 0.5, np.flatnonzero(~removed)])
    values = np.concatenate([np.full(len(mask_positions), mask_id), tokens[~removed]])
    return values[np.argsort(keys, kind="stable")]


def random_partition(total: int, num_parts: int, rng: Generator) -> Ints:
    """Lengths ≥ 1 of a uniformly random partition of `total` items into consecutive parts."""
    cuts = np.sort(rng.choice(total - 1, num_parts - 1, replace=False)) + 1 if num_parts > 1 else np.zeros(0, np.int64)
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt_spans(tokens: Array, sentinels: Ints, rate: float, mean: float, rng: Generator) -> tuple[Array, Array]:
    """T5's span corruption → (source with a sentinel for each span, target of sentinels followed by their spans)."""
    size = len(tokens)
    num_noise = min(max(round(size * rate), 1), size - 1) if size > 1 else size
    num_spans = min(max(round(num_noise / mean), 1), max(size - num_noise, 1))
    if num_spans > len(sentinels):
        raise MeristemError(
            f"objective denoising: a text of {size} tokens needs {num_spans} sentinels, and the tokenizer has "
            f"{len(sentinels)}; set tokenizer.sentinels={num_spans} or more"
        )
    kept_lengths = random_partition(size - num_noise, num_spans, rng) if size > num_noise else np.zeros(1, np.int64)
    span_lengths = random_partition(num_noise, num_spans, rng)
    ends = np.cumsum(np.stack([kept_lengths, span_lengths], 1).reshape(-1))
    pieces = np.split(tokens, ends[:-1])
    source = [part for span in range(num_spans) for part in (pieces[2 * span], sentinels[span : span + 1])]
    target = [part for span in range(num_spans) for part in (sentinels[span : span + 1], pieces[2 * span + 1])]
    return np.concatenate(source), np.concatenate(target)


class DenoisingObjective(SequenceTargetObjective):
    """p(text | corrupted text) as in BART, or p(spans | text with sentinels) as in T5."""

    Settings = DenoisingObjectiveSettings
    name = "denoising"
    requires = frozenset({"encoder_decoder"})
    view = ViewSpec("windows")
    settings: DenoisingObjectiveSettings

    def __init__(self, settings: DenoisingObjectiveSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        spare_tokens = max(self.template.num_special_tokens(), len(self.decoder_start_ids))
        self.view = ViewSpec("windows", (("frame", False), ("spare", spare_tokens), ("sentences", True)))
        self.sentinels = np.array(tokenizer.sentinels, np.int64)
        if settings.kind == "spans" and not len(self.sentinels):
            raise MeristemError(
                "objective denoising: kind=spans needs sentinel tokens (<extra_id_0>, …) and this tokenizer has none; "
                "set tokenizer.sentinels=100, or use kind=noise"
            )
        uses_mask = settings.kind == "noise" and (settings.mask_rate > 0 or settings.infill_rate > 0)
        if uses_mask and tokenizer.mask is None:
            raise MeristemError(
                "objective denoising: this tokenizer has no mask token; train a tokenizer that has one, or use only "
                "delete_rate, permute_rate and rotate_rate"
            )
        self.mask_id = -1 if tokenizer.mask is None else tokenizer.mask
        self.source_kinds = frozenset({"sentinels"} if settings.kind == "spans" else {"masks"} if uses_mask else ())

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Corrupt the text; the target is the text itself (BART) or the removed spans (T5)."""
        if "documents" in row.inputs:
            raise MeristemError(
                "dataset.intra_document_mask: denoising cannot isolate the documents of a window; turn it off"
            )
        rng, tokens, s = draw("denoising"), row.inputs["tokens"], self.settings
        if s.kind == "spans":
            source, target = corrupt_spans(tokens, self.sentinels, s.corruption_rate, s.mean_span_length, rng)
        else:
            source, target = self._add_noise(tokens, row.metadata["special"], row.metadata["sentences"], rng), tokens
        source_ids = self.template.add_special_tokens(source)
        return self.build_row(row, np.append(target, self.end_id), source=source_ids)

    def _add_noise(self, tokens: Array, special: Bools, sentences: Ints, rng: Generator) -> Array:
        """Apply all noise functions in order; special tokens, which separate documents, are unchanged."""
        s = self.settings
        order = self._reorder(tokens, sentences, rng)
        tokens, special = tokens[order], special[order]
        if s.delete_rate:
            keep_mask = ~sample_positions(~special, s.delete_rate, rng)
            tokens, special = tokens[keep_mask], special[keep_mask]
        if s.mask_rate:
            tokens = np.where(sample_positions(~special, s.mask_rate, rng), self.mask_id, tokens)
        if s.infill_rate:
            tokens = infill_spans(tokens, ~special, self.mask_id, s.infill_rate, s.mean_span_length, rng)
        return tokens

    def _reorder(self, tokens: Array, sentences: Ints, rng: Generator) -> Ints:
        """Positions after sentence permutation and document rotation, within each document."""
        starts = np.flatnonzero(tokens == self.end_id) + 1  # an end token belongs to the document it ends
        order = []
        for document in np.split(np.arange(len(tokens)), starts):
            text_positions = document[:-1] if len(document) and tokens[document[-1]] == self.end_id else document
            if not len(text_positions):
                order.append(document)
                continue
            new_order = np.arange(len(text_positions))
            if rng.random() < self.settings.permute_rate:
                new_order = permute_sentences(len(text_positions), sentences - text_positions[0], rng)
            if rng.random() < self.settings.rotate_rate:
                new_order = new_order[rotate_document(len(text_positions), rng)]
            order += [text_positions[new_order], document[len(text_positions) :]]
        return np.concatenate(order)
