"""Verbatim extraction: the model continues beginnings of training text, and what it writes is looked up in that text.

A match is a continuation of full length whose tokens stand in the shards that the model was trained on, compared token
by token. The same is done with held-out text: common phrases are found there too, without having been memorised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.generation.generated_text import GeneratedText
from meristem.metrics.proportion_intervals import Interval, wilson_interval
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.trust.exposure.continuations import ContinuationModel, Prompt, as_ids
from meristem.trust.exposure.corpus_search import Occurrences, find_sequences
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.passages import Passage, Skipped, passage_size, sample_passages

MIN_PASSAGE_TOKENS = 9
"""Shorter passages are too common to show anything."""
CONTINUATION_SHARE = 3
"""Where documents are short, a third of a passage is the continuation."""
OCCURRENCE_BINS = ((1, 1), (2, 4), (5, 16), (17, 64), (65, None))
"""How often prefix and continuation stand in the training text: first and last count of each row."""
MAX_EXAMPLES = 20


@dataclass(frozen=True, kw_only=True)
class ExtractionRate:
    """How many of the prefixes of one split were continued verbatim in one mode."""

    split: str
    mode: str
    """greedy; or sampled: at least one of the samples."""
    prefixes: int
    reproduced: int
    """Continued exactly as the document goes on."""
    in_training_text: int
    """Continued with text that stands anywhere in the training text."""

    @property
    def rate(self) -> float:
        """Share of the prefixes whose continuation stands in the training text."""
        return self.in_training_text / max(1, self.prefixes)

    @property
    def interval(self) -> Interval:
        """95 % interval of the rate (Wilson)."""
        return wilson_interval(self.rate, max(1, self.prefixes))


@dataclass(frozen=True, kw_only=True)
class OccurrenceRate:
    """Prefixes whose passage stands equally often in the training text, and how many were continued exactly."""

    label: str
    prefixes: int
    reproduced: int


@dataclass(frozen=True, kw_only=True)
class ExtractedText:
    """A generated continuation that stands in the training text."""

    prefix: str
    continuation: str
    mode: str
    source: str
    document: int
    """Number of a document of the training split in which it stands."""
    position: int
    """Where it begins in the tokens of the training split."""
    occurrences: int
    """How often it stands in the training text."""
    reproduced: bool
    """Whether the document goes on like this after the prefix."""


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """Verbatim extraction of one source."""

    source: str
    prefix_tokens: int
    continuation_tokens: int
    rates: tuple[ExtractionRate, ...]
    by_occurrences: tuple[OccurrenceRate, ...]
    extracted: tuple[ExtractedText, ...]
    """The matches of training prefixes, most frequent text first; up to `MAX_EXAMPLES` of those of either mode."""
    num_matches: int


def measure_extraction(
    model: ContinuationModel,
    source: str,
    train: TokenStream,
    held_out: Sequence[TokenStream],
    options: ExposureOptions,
    skipped: Skipped,
    progress: Callable[[int], None],
) -> Extraction | None:
    """Continue passages of the training split and of held-out splits; None if the documents are too short."""
    max_size = min(options.prefix_tokens + options.continuation_tokens, model.model.backbone.max_length - 4)
    size = passage_size(train, max_size, skipped)
    if train.has_pairs or size < MIN_PASSAGE_TOKENS:
        return None
    continuation_tokens = min(options.continuation_tokens, size // CONTINUATION_SHARE)
    extractor = _Extractor(model, source, train, size - continuation_tokens, options, progress)
    trained = extractor.attempts(train, size, skipped)
    if not trained:
        return None
    per_split = max(1, options.prefixes // max(1, len(held_out)))
    unseen = [attempt for stream in held_out for attempt in extractor.attempts(stream, size, (), per_split)]
    texts = extractor.extracted_texts(trained)
    return Extraction(
        source=source,
        prefix_tokens=size - continuation_tokens,
        continuation_tokens=continuation_tokens,
        rates=(*_rates("train", trained), *_rates("held-out", unseen)),
        by_occurrences=_by_occurrences(trained),
        extracted=tuple(_select_examples(texts)),
        num_matches=len(texts),
    )


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One prefix, its continuations, and where they stand in the training text."""

    prefix_text: str
    prefix: IntArray
    target: IntArray
    generated: tuple[IntArray, ...]
    """The greedy continuation first."""
    occurrences: tuple[Occurrences, ...]
    """Of each continuation; none for those that ended before their full length."""
    passage_occurrences: int
    """How often prefix and target stand in the training text."""

    def reproduced(self, index: int) -> bool:
        """Whether a continuation is how the document goes on."""
        return np.array_equal(self.generated[index], self.target)


class _Extractor:
    """Continues passages of one source."""

    def __init__(
        self,
        model: ContinuationModel,
        source: str,
        train: TokenStream,
        prefix_tokens: int,
        options: ExposureOptions,
        progress: Callable[[int], None],
    ) -> None:
        self._model, self._source, self._train = model, source, train
        self._prefix_tokens, self._options, self._progress = prefix_tokens, options, progress

    def attempts(self, stream: TokenStream, size: int, skipped: Skipped, count: int | None = None) -> list[_Attempt]:
        """Continuations of passages of a split, looked up in the training text."""
        count, tokenizer, num_prefix = count or self._options.prefixes, self._model.tokenizer, self._prefix_tokens
        drawn = sample_passages(stream, size, 2 * count, seed=self._options.seed, skipped=skipped)
        passages = [passage for passage in drawn if _survives_decoding(tokenizer, passage.ids[:num_prefix])][:count]
        prefix_texts = [tokenizer.decode(passage.ids[:num_prefix].tolist()) for passage in passages]
        prompts = [Prompt(text=text, num_tokens=size - num_prefix) for text in prefix_texts]
        texts = list(self._model.continue_all(prompts, self._options.samples, self._progress))
        return self._look_up(passages, prefix_texts, texts, size - num_prefix)

    def _look_up(
        self,
        passages: Sequence[Passage],
        prefix_texts: Sequence[str],
        texts: Sequence[Sequence[GeneratedText]],
        num_tokens: int,
    ) -> list[_Attempt]:
        generated = [[as_ids(text)[:num_tokens] for text in passage_texts] for passage_texts in texts]
        full = [ids if len(ids) == num_tokens else ids[:0] for passage_ids in generated for ids in passage_ids]
        occurrences = find_sequences(self._train, [*full, *(passage.ids for passage in passages)])
        per_passage = 1 + self._options.samples
        return [
            _Attempt(
                prefix_text=prefix_texts[index],
                prefix=passage.ids[: self._prefix_tokens],
                target=passage.ids[self._prefix_tokens :],
                generated=tuple(generated[index]),
                occurrences=tuple(occurrences[index * per_passage : (index + 1) * per_passage]),
                passage_occurrences=occurrences[len(full) + index].count,
            )
            for index, passage in enumerate(passages)
        ]

    def extracted_texts(self, attempts: Sequence[_Attempt]) -> list[ExtractedText]:
        """Every different continuation that stands in the training text, read from there; most frequent ones first."""
        texts: dict[tuple[str, str], ExtractedText] = {}
        for attempt in attempts:
            for index, (ids, occurrences) in enumerate(zip(attempt.generated, attempt.occurrences, strict=True)):
                if not occurrences.count:
                    continue
                position = occurrences.positions[0]
                stored = self._train.tokens(position, position + len(ids))
                if not np.array_equal(stored, ids):
                    raise AssertionError(f"the match at token {position} is not in the shards")
                text = ExtractedText(
                    prefix=attempt.prefix_text,
                    continuation=self._model.tokenizer.decode(stored.tolist()),
                    mode="greedy" if index == 0 else "sampled",
                    source=self._source,
                    document=self._train.document_at(position),
                    position=position,
                    occurrences=occurrences.count,
                    reproduced=attempt.reproduced(index),
                )
                texts.setdefault((text.prefix, text.continuation), text)
        return sorted(texts.values(), key=lambda text: (not text.reproduced, -text.occurrences))


def _survives_decoding(tokenizer: Tokenizer, ids: IntArray) -> bool:
    """Whether a text of these tokens is tokenized to them again, so that the model is asked what was stored."""
    text = tokenizer.decode(ids.tolist())
    return np.array_equal(tokenizer.ids_each([text])[0], ids)


def _rates(split: str, attempts: Sequence[_Attempt]) -> list[ExtractionRate]:
    """The rates of greedy and sampled continuations of one split."""
    rates = []
    for mode in ("greedy", "sampled") if attempts else ():
        chosen = [range(1) if mode == "greedy" else range(1, len(attempt.generated)) for attempt in attempts]
        pairs = list(zip(attempts, chosen, strict=True))
        rates.append(
            ExtractionRate(
                split=split,
                mode=mode,
                prefixes=len(attempts),
                reproduced=sum(any(attempt.reproduced(index) for index in indices) for attempt, indices in pairs),
                in_training_text=sum(
                    any(attempt.occurrences[index].count for index in indices) for attempt, indices in pairs
                ),
            )
        )
    return rates


def _by_occurrences(attempts: Sequence[_Attempt]) -> tuple[OccurrenceRate, ...]:
    """Greedy reproduction by how often the passage stands in the training text; rows without passages are left out."""
    rows = []
    for first, last in OCCURRENCE_BINS:
        chosen = [
            attempt
            for attempt in attempts
            if attempt.passage_occurrences >= first and (last is None or attempt.passage_occurrences <= last)
        ]
        label = f"{first}" if first == last else f"{first} or more" if last is None else f"{first} to {last}"
        reproduced = sum(attempt.reproduced(0) for attempt in chosen)
        rows += [OccurrenceRate(label=label, prefixes=len(chosen), reproduced=reproduced)] if chosen else []
    return tuple(rows)


def _select_examples(texts: Sequence[ExtractedText]) -> list[ExtractedText]:
    """Some texts of each mode."""
    return [
        text for mode in ("greedy", "sampled") for text in [text for text in texts if text.mode == mode][:MAX_EXAMPLES]
    ]
