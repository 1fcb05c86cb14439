"""Base of word-level tasks: tag vocabulary, sliding windows, word-token alignment, merging of windows."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.encoded_input import EncodedInput, TokenizedText
from meristem.interfaces.task import Sample, SamplePiece
from meristem.tasks._encoder_task import EncoderTask, EncoderTaskSettings
from meristem.tasks._sliding_windows import Positions, innermost_window, sliding_windows
from meristem.tasks._tag_predictions import IGNORED_TAG, TagPrediction, WindowTags
from meristem.tasks._word_alignment import align_words, parse_words_input
from meristem.tokenizers.tokenizer import Tokenizer


class WordTaskSettings(EncoderTaskSettings):
    """Settings of every word-level task."""

    renamed: ClassVar[dict[str, str]] = {
        "usual": "default_tag",
        "read": "subtoken_pooling",
    }

    labels: tuple[str, ...] = ()
    """Tags in the order of the logits; from the training data if not set."""
    default_tag: str | None = None
    """The tag of words without tokens: O, or the most frequent tag of the training data if not set."""
    subtoken_pooling: Literal["first", "last"] = "first"
    """The sub-word token whose state represents a word."""
    stride: int | None = Field(None, ge=1)
    """Tokens between the starts of two windows of a long text; three quarters of a window if not set."""

    @property
    def head_labels(self) -> tuple[str, ...]:
        """The labels of the outputs."""
        return self.labels


class WordTask(EncoderTask):
    """A task on words: each is represented by one token, in the window where it has the most context."""

    sample_type = "words"

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        if not settings.labels:
            raise MeristemError(f"task {settings.name}: its labels are not known; they come from the training data")
        self.label_ids = {label: number for number, label in enumerate(settings.labels)}
        self.default_tag: str = settings.default_tag or ("O" if "O" in self.label_ids else settings.labels[0])

    # ------------------------------------------------------------ labels

    @staticmethod
    def gold_tags(sample: Sample) -> Sequence[str] | None:
        """The gold tags of a sample's words."""
        return sample.gold  # type: ignore[no-any-return]  # as its sample type defines it

    @classmethod
    def fit_settings(cls, settings: Any, samples: Sequence[Sample]) -> Any:
        """The settings with the tags in order, O first, and the tag of words without tokens."""
        found = Counter(tag for sample in samples for tag in cls.gold_tags(sample) or () if tag != IGNORED_TAG)
        if not found:
            raise MeristemError("data.label: no training sample has a tag")
        labels = settings.labels or tuple(sorted(found, key=_tag_sort_key))
        for sample in samples:
            if other := {*(cls.gold_tags(sample) or ())} - {*labels, IGNORED_TAG}:
                raise MeristemError(f"{sample.location}: the tag {min(other)!r} is not among task.labels")
        usual = settings.default_tag or ("O" if "O" in labels else found.most_common(1)[0][0])
        return settings.model_copy(update={"labels": labels, "default_tag": usual})

    @classmethod
    def sample_texts(cls, sample: Sample) -> list[str]:
        """The text, which contains the words."""
        return [str(sample.inputs["text"])]

    def unseen_label_warnings(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about tags that do not occur in the training data."""
        where: dict[str, list[str]] = {}
        for sample in samples:
            for tag in self.gold_tags(sample) or ():
                if tag not in self.label_ids and tag != IGNORED_TAG:
                    where.setdefault(tag, []).append(sample.location)
        return [
            f"{found[0]}: the tag {tag!r} does not occur in the training data; its {len(found)} words cannot be "
            "predicted correctly"
            for tag, found in where.items()
        ]

    # ------------------------------------------------------------ rows

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """One window per text, several for a long one; each word with a token is predicted in exactly one of them."""
        room = self.template.max_text_tokens()
        stride = self.settings.stride or room - room // 4
        return [
            SamplePiece(
                sample_index=number,
                num_tokens=self.template.num_tokens([parts["text"]]),
                features=parts,
            )
            for number, (text, at) in enumerate(align_words(self.template, samples, self.settings.subtoken_pooling))
            for parts in self._iter_windows(text, at, samples[number], room, stride)
        ]

    def _iter_windows(
        self, text: TokenizedText, word_positions: Positions, sample: Sample, max_tokens: int, stride: int
    ) -> Iterator[dict[str, Any]]:
        spans, tags = sliding_windows(len(text.ids), max_tokens, stride), self._gold_tag_ids(sample)
        words = np.flatnonzero(word_positions >= 0)
        places = word_positions[words]
        owner = innermost_window(places, spans)
        for window, (start, stop) in enumerate(spans):
            inside = (places >= start) & (places < stop)
            mine = owner[inside] == window
            if window and not mine.any():
                continue
            yield {
                "text": text.slice(start, stop),
                "words": words[inside],
                "at": places[inside] - start,
                "mine": mine,
                "tags": None if tags is None else np.where(mine, tags[words[inside]], -1),
                "first": window == 0,
                **self.extra_parts(sample, first_window=window == 0),
            }

    def extra_parts(self, sample: Sample, *, first_window: bool) -> dict[str, Any]:
        """Additional features of a window; some belong to a sample's first window only."""
        return {}

    def _gold_tag_ids(self, sample: Sample) -> Positions | None:
        """The ids of the gold tags, −1 for ignored and unseen ones; None if the sample has no gold."""
        tags = self.gold_tags(sample)
        return None if tags is None else np.array([self.label_ids.get(tag, -1) for tag in tags], np.int64)

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The window with special tokens; `read` has all its words, the task's target those predicted here."""
        parts: dict[str, Any] = row.metadata["piece"].features
        encoded = self.template.build_input(parts["text"])
        at = parts["at"] + encoded.text_starts[0]
        tags = np.full(len(at), -1, np.int64) if parts["tags"] is None else parts["tags"]
        goals: dict[str, Any] = {"read": {"at": at, "order": np.arange(len(at)), "values": tags}}
        if parts["tags"] is not None:
            goals[self.term] = {"at": at[tags >= 0], "values": tags[tags >= 0]}
        goals |= {**self.lm_goal(encoded), **self.extra_goals(encoded, parts)}
        return Row(inputs=encoded.inputs, targets=goals, metadata=row.metadata, sample_id=row.sample_id)

    @property
    def term(self) -> str:
        """The loss term of the tags."""
        return self.name

    def extra_goals(self, encoded: EncodedInput, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Additional targets of a row."""
        return {}

    def split_by_row(self, batch: Batch, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Values of all words of the batch [..., n], split by row."""
        ends = np.cumsum([len(note["piece"].features["words"]) for note in batch.metadata])
        return np.split(values, ends[:-1], -1)

    def merge_tags(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], window_tags: Sequence[WindowTags]
    ) -> list[TagPrediction]:
        """The tags of each sample: each word from its own window; words without tokens get the default tag."""
        labels = self.settings.labels
        tags = [[self.default_tag] * len(sample.inputs["words"]) for sample in samples]
        scores = [[0.0] * len(sample.inputs["words"]) for sample in samples]
        for piece, (best, chances) in zip(pieces, window_tags, strict=True):
            mine = piece.features["mine"]
            for word, tag, chance in zip(piece.features["words"][mine], best[mine], chances[mine], strict=True):
                tags[piece.sample_index][word], scores[piece.sample_index][word] = labels[tag], float(chance)
        return [TagPrediction(tags=tuple(some), scores=tuple(own)) for some, own in zip(tags, scores, strict=True)]

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A raw text is split into words by `split_words`; a list of words is used as given."""
        return parse_words_input(value, self.name)

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """The command with the text, which is split into words again."""
        return [f"meristem predict {run_path} {shlex.quote(str(sample.inputs['text']))}"]

    def describe_sample(self, sample: Sample) -> str:
        """Each word with its tag."""
        tags = self.gold_tags(sample) or [IGNORED_TAG] * len(sample.inputs["words"])
        return "  ".join(f"{word}/{tag}" for word, tag in zip(sample.inputs["words"], tags, strict=True))


def _tag_sort_key(tag: str) -> tuple[bool, str, str]:
    """Sort key: O first, then by type, B before I."""
    kind, _, name = tag.partition("-")
    return tag != "O", name, kind
