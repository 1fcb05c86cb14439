"""Denoising: a text is damaged and written anew, whole as in BART, or only what is missing as in T5 (SPEC B8)."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from meristem.batch import Array, Draws, Row, View
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.objectives._written import Written, WrittenSettings
from meristem.tokenizers.tokenizer import Tokenizer

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


NOISES = ("permute_rate", "rotate_rate", "delete_rate", "mask_rate", "infill_rate")
"""Shares of what BART's noises change."""


class DenoisingSettings(WrittenSettings):
    """Which damage is done; several noises follow each other in the order they stand here."""

    needs: ClassVar[Dependences] = {
        **dict.fromkeys(NOISES, (when("kind", "noise"),)),
        "span_mean": (when("kind", "spans") | when("infill_rate", above=0),),
        "corrupt_rate": (when("kind", "spans"),),
    }

    name: Literal["denoising"] = "denoising"
    """The objective's name."""
    kind: Literal["noise", "spans"] = "noise"
    """noise: the whole text is written anew (BART); spans: only what sentinels stand for is written (T5)."""
    permute_rate: float = Field(1.0, ge=0, le=1)
    """Share of documents whose sentences are shuffled."""
    rotate_rate: float = Field(0.0, ge=0, le=1)
    """Share of documents that are turned round to begin at a random token."""
    delete_rate: float = Field(0.0, ge=0, lt=1)
    """Share of tokens that are left out."""
    mask_rate: float = Field(0.0, ge=0, lt=1)
    """Share of tokens that become a mask each."""
    infill_rate: float = Field(0.3, ge=0, lt=1)
    """Share of tokens in spans that become one mask each; a span of no token puts a mask in."""
    span_mean: float = Field(3.0, gt=0)
    """Mean length of a span: λ of BART's Poisson distribution, μ of T5's spans."""
    corrupt_rate: float = Field(0.15, gt=0, lt=1)
    """Share of tokens in T5's spans."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.kind == "spans" and self.span_mean < 1:
            raise ValueError("span_mean: a span of kind=spans has at least one token")
        noises = (self.permute_rate, self.rotate_rate, self.delete_rate, self.mask_rate, self.infill_rate)
        if self.kind == "noise" and not any(noises):
            raise ValueError("every noise is off: there would be nothing to learn but to copy")
        return self


def permute(size: int, sentences: Ints, rng: Generator) -> Ints:
    """A document's positions with its sentences in an order drawn evenly from all of them."""
    parts = np.split(np.arange(size), sentences[(sentences > 0) & (sentences < size)])
    return np.concatenate([parts[number] for number in rng.permutation(len(parts))])


def rotate(size: int, rng: Generator) -> Ints:
    """A document's positions from a random one on, and the others after them."""
    return np.roll(np.arange(size), -int(rng.integers(size)))


def chosen(allowed: Bools, rate: float, rng: Generator) -> Bools:
    """A share of the allowed positions, drawn evenly; rounding is drawn too, so that means are exact."""
    places = np.flatnonzero(allowed)
    wanted = min(len(places), int(rate * len(places) + rng.random()))
    out = np.zeros(len(allowed), bool)
    out[rng.choice(places, wanted, replace=False)] = True
    return out


def lengths(wanted: int, mean: float, rng: Generator) -> Ints:
    """Poisson lengths that add up to `wanted`, the last cut where it would overshoot; zeros are lengths too."""
    out = np.zeros(0, np.int64)
    while out.sum() < wanted:
        out = np.concatenate([out, rng.poisson(mean, 8 + int(2 * wanted / mean))])
    if not wanted:
        return out
    last = int(np.searchsorted(np.cumsum(out), wanted))
    out = out[: last + 1]
    out[-1] -= out.sum() - wanted
    return out


def infill(tokens: Array, allowed: Bools, mask: int, rate: float, mean: float, rng: Generator) -> Array:
    """Spans of Poisson length become one mask each, and spans of none put one in; special tokens are never covered.

    The tokens that are kept are dealt out evenly before, between and after the spans.
    """
    places = np.flatnonzero(allowed)
    spans = lengths(int(rate * len(places) + rng.random()), mean, rng)
    room = int((spans - 1).clip(0).sum())
    spans = spans[(spans > 0) | (np.cumsum(spans == 0) <= room)]  # a text never grows
    kept = len(places) - int(spans.sum())
    spans = rng.permutation(spans)
    before = np.sort(rng.integers(kept + 1, size=len(spans)))  # kept tokens that stand before each span
    starts = before + np.cumsum(spans) - spans  # among the places
    covered = np.zeros(len(places) + 1, np.int64)
    np.add.at(covered, starts, spans > 0)
    np.add.at(covered, starts + spans, -(spans > 0).astype(np.int64))
    gone = np.zeros(len(tokens), bool)
    gone[places[np.cumsum(covered)[:-1] > 0]] = True
    at = np.append(places, len(tokens))[starts]  # where each mask is put in
    keys = np.concatenate([at - 0.5, np.flatnonzero(~gone)])
    values = np.concatenate([np.full(len(at), mask), tokens[~gone]])
    return values[np.argsort(keys, kind="stable")]


def segments(total: int, parts: int, rng: Generator) -> Ints:
    """`total` things cut into so many runs of at least one, every way alike."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1 if parts > 1 else np.zeros(0, np.int64)
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt(tokens: Array, sentinels: Ints, rate: float, mean: float, rng: Generator) -> tuple[Array, Array]:
    """T5's spans: the text with a sentinel for each, and each sentinel followed by what it stands for."""
    size = len(tokens)
    noise = min(max(round(size * rate), 1), size - 1) if size > 1 else size
    spans = min(max(round(noise / mean), 1), max(size - noise, 1))
    if spans > len(sentinels):
        raise MeristemError(
            f"objective denoising: a text of {size} tokens is hidden in {spans} spans, and the tokenizer has "
            f"{len(sentinels)} sentinels; set tokenizer.sentinels={spans} or more"
        )
    kept = segments(size - noise, spans, rng) if size > noise else np.zeros(1, np.int64)
    hidden = segments(noise, spans, rng)
    ends = np.cumsum(np.stack([kept, hidden], 1).reshape(-1))
    pieces = np.split(tokens, ends[:-1])
    source = [part for number in range(spans) for part in (pieces[2 * number], sentinels[number : number + 1])]
    target = [part for number in range(spans) for part in (sentinels[number : number + 1], pieces[2 * number + 1])]
    return np.concatenate(source), np.concatenate(target)


class Denoising(Written):
    """p(text | damaged text), or p(missing spans | the rest)."""

    Settings = DenoisingSettings
    name = "denoising"
    needs = frozenset({"encoder_decoder"})
    view = View("windows")

    def __init__(self, settings: DenoisingSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        spare = max(len(self.before) + len(self.after), len(self.begin_ids))
        self.view = View("windows", (("frame", False), ("spare", spare), ("sentences", True)))
        self.sentinels = np.array(tokenizer.sentinels, np.int64)
        if settings.kind == "spans" and not len(self.sentinels):
            raise MeristemError(
                "objective denoising: kind=spans needs sentinel tokens (<extra_id_0>, …) and this tokenizer has none; "
                "set tokenizer.sentinels=100, or use kind=noise"
            )
        masks = settings.kind == "noise" and (settings.mask_rate > 0 or settings.infill_rate > 0)
        if masks and tokenizer.mask is None:
            raise MeristemError(
                "objective denoising: this tokenizer has no mask token; train one, or leave only delete_rate, "
                "permute_rate and rotate_rate on"
            )
        self.mask = -1 if tokenizer.mask is None else tokenizer.mask
        self.source_kinds = frozenset({"sentinels"} if settings.kind == "spans" else {"masks"} if masks else ())

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Damage the text; the target is the text itself, or what is missing."""
        if "documents" in row.inputs:
            raise MeristemError("store.isolate: denoising cannot keep documents of a window apart; turn it off")
        rng, tokens, s = draw("denoising"), row.inputs["tokens"], self.settings
        if s.kind == "spans":
            source, target = corrupt(tokens, self.sentinels, s.corrupt_rate, s.span_mean, rng)
        else:
            source, target = self._noisy(tokens, row.notes["special"], row.notes["sentences"], rng), tokens
        framed = np.concatenate([self.before, source, self.after]).astype(np.int64)
        return self.write(row, np.append(target, self.end), source=framed)

    def _noisy(self, tokens: Array, special: Bools, sentences: Ints, rng: Generator) -> Array:
        """Every noise in turn; special tokens, which part documents, stay as they are."""
        s = self.settings
        order = self._reordered(tokens, sentences, rng)
        tokens, special = tokens[order], special[order]
        if s.delete_rate:
            kept = ~chosen(~special, s.delete_rate, rng)
            tokens, special = tokens[kept], special[kept]
        if s.mask_rate:
            tokens = np.where(chosen(~special, s.mask_rate, rng), self.mask, tokens)
        if s.infill_rate:
            tokens = infill(tokens, ~special, self.mask, s.infill_rate, s.span_mean, rng)
        return tokens

    def _reordered(self, tokens: Array, sentences: Ints, rng: Generator) -> Ints:
        """Positions after sentences were shuffled and documents rotated, each document by itself."""
        starts = np.flatnonzero(tokens == self.end) + 1  # the separator belongs to what it ends
        order = []
        for part in np.split(np.arange(len(tokens)), starts):
            text = part[:-1] if len(part) and tokens[part[-1]] == self.end else part
            if not len(text):
                order.append(part)
                continue
            places = np.arange(len(text))
            if rng.random() < self.settings.permute_rate:
                places = permute(len(text), sentences - text[0], rng)
            if rng.random() < self.settings.rotate_rate:
                places = places[rotate(len(text), rng)]
            order += [text[places], part[len(text) :]]
        return np.concatenate(order)
