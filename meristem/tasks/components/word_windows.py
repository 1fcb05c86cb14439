"""Input encoder of word-level tasks: sliding windows, each word read at one token in its innermost window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.encoded_input import TokenizedText
from meristem.inputs.template import InputTemplate
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import InputEncoder
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tasks.components.ngram_logits import TERM as NGRAMS
from meristem.tasks.components.ngram_logits import NgramLogits
from meristem.tasks.components.sliding_windows import Positions, innermost_window, sliding_windows
from meristem.tasks.components.tag_set import TagSet, WordSettings
from meristem.tasks.components.text_encoder import TargetFunction
from meristem.tasks.components.word_alignment import align_words
from meristem.tasks.components.word_inputs import complete_word_inputs


@dataclass(frozen=True)
class SummaryTarget:
    """A target of the whole text, at the summary position of its first window."""

    term: str
    target: TargetFunction


class WordWindows(InputEncoder):
    """One window per text, several for a long one; each word with a token is predicted in exactly one of them."""

    def __init__(
        self,
        template: InputTemplate,
        term: str,
        tags: TagSet,
        settings: WordSettings,
        lm_loss: LanguageModelLoss,
        *,
        summary: SummaryTarget | None = None,
        whole_text: bool = False,
        ngrams: NgramLogits | None = None,
    ) -> None:
        """`term` is the loss term of the tags; with `whole_text` the text is a single word."""
        self.template: InputTemplate = template
        self.term, self.tags, self.settings, self.lm_loss = term, tags, settings, lm_loss
        self.summary, self.whole_text, self.ngrams = summary, whole_text, ngrams

    def complete_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """A raw text is split into words; a list of words is used as given."""
        completed = complete_word_inputs(inputs)
        return {"text": completed["text"]} if self.whole_text else completed

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The windows of each text."""
        max_tokens = self.template.max_text_tokens()
        stride = self.settings.stride or max_tokens - max_tokens // 4
        samples = [as_word_sample(sample) for sample in samples]
        aligned = align_words(self.template, samples, self.settings.subtoken_pooling)
        return [
            SamplePiece(sample_index=index, num_tokens=self.template.num_tokens([features["text"]]), features=features)
            for index, (text, positions) in enumerate(aligned)
            for features in self._iter_windows(text, positions, samples[index], max_tokens, stride)
        ]

    def _iter_windows(
        self, text: TokenizedText, word_positions: Positions, sample: Sample, max_tokens: int, stride: int
    ) -> Iterator[dict[str, Any]]:
        spans, tags = sliding_windows(len(text.ids), max_tokens, stride), self.tags.gold_ids(sample)
        words = np.flatnonzero(word_positions >= 0)
        positions = word_positions[words]
        owner = innermost_window(positions, spans)
        word_buckets = [] if self.ngrams is None else self.ngrams.of_words(sample.inputs["words"])
        for window, (start, stop) in enumerate(spans):
            inside = (positions >= start) & (positions < stop)
            own_words = owner[inside] == window
            if window and not own_words.any():
                continue
            yield {
                "text": text.slice(start, stop),
                "words": words[inside],
                "positions": positions[inside] - start,
                "own_words": own_words,
                "buckets": [word_buckets[word] for word in words[inside]] if word_buckets else [],
                "tags": None if tags is None else np.where(own_words, tags[words[inside]], -1),
                "is_first": window == 0,
                "summary": self.summary.target(sample) if self.summary and window == 0 else {},
            }

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The window with special tokens; `read` has all its words, the task's target those predicted here."""
        features = row.metadata["piece"].features
        encoded = self.template.build_input(features["text"])
        positions = features["positions"] + encoded.text_starts[0]
        tags = np.full(len(positions), -1, np.int64) if features["tags"] is None else features["tags"]
        targets = {"read": {"at": positions, "order": np.arange(len(positions)), "values": tags}}
        if features["tags"] is not None:
            targets[self.term] = {"at": positions[tags >= 0], "values": tags[tags >= 0]}
        targets |= self.lm_loss.targets(encoded)
        if self.ngrams is not None:
            targets[NGRAMS] = self.ngrams.word_targets(positions, features["buckets"])
        if self.summary is not None:
            targets["whole"] = {"at": np.array([encoded.summary_position])}
            if features["summary"]:
                targets[self.summary.term] = {**targets["whole"], **features["summary"]}
        return Row(inputs=encoded.inputs, targets=targets, metadata=row.metadata, sample_id=row.sample_id)


def split_by_window(batch: Batch, values: NDArray[Any]) -> list[NDArray[Any]]:
    """Values of all words of the batch [..., n], split by window."""
    ends = np.cumsum([len(metadata["piece"].features["words"]) for metadata in batch.metadata])
    return np.split(values, ends[:-1], -1)


def as_word_sample(sample: Sample) -> Sample:
    """A text sample as a sample with the text as its only word."""
    if "words" in sample.inputs:
        return sample
    text = str(sample.inputs["text"])
    return replace(sample, inputs={"words": (text,), "text": text, "offsets": ((0, len(text)),)})
