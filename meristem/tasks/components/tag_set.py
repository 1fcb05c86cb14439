"""Tags of words: settings found in the training data, gold tags as ids, tags merged from the windows of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import HeadClasses
from meristem.tasks.components.label_values import unseen_label_warnings
from meristem.tasks.components.sliding_windows import Positions
from meristem.tasks.components.tag_predictions import IGNORED_TAG, TagPrediction, WindowTags
from meristem.tasks.settings import TaskSettings

GoldTags = Callable[[Sample], Sequence[str] | None]
"""Sample → the gold tags of its words, where they are known."""


class WordSettings(TaskSettings):
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

    @classmethod
    def of_classes(cls, classes: HeadClasses) -> dict[str, Any]:
        """The tags of an imported head."""
        return {"labels": classes.labels}


FittedSettings = TypeVar("FittedSettings", bound=WordSettings)


def word_tags(sample: Sample) -> Sequence[str] | None:
    """The gold of a sample whose gold is the tags of its words."""
    return sample.gold  # type: ignore[no-any-return]  # as its sample type defines it


def fit_tag_settings(
    settings: FittedSettings, samples: Sequence[Sample], gold_tags: GoldTags = word_tags
) -> FittedSettings:
    """The settings with the tags in order, O first, and the tag of words without tokens."""
    counts = Counter(tag for sample in samples for tag in gold_tags(sample) or () if tag != IGNORED_TAG)
    if not counts:
        raise MeristemError("data.label: no training sample has a tag")
    labels = settings.labels or tuple(sorted(counts, key=_tag_sort_key))
    for sample in samples:
        if unknown := {*(gold_tags(sample) or ())} - {*labels, IGNORED_TAG}:
            raise MeristemError(f"{sample.location}: the tag {min(unknown)!r} is not among task.labels")
    default_tag = settings.default_tag or ("O" if "O" in labels else counts.most_common(1)[0][0])
    return settings.model_copy(update={"labels": labels, "default_tag": default_tag})


def _tag_sort_key(tag: str) -> tuple[bool, str, str]:
    """Sort key: O first, then by type, B before I."""
    kind, _, name = tag.partition("-")
    return tag != "O", name, kind


class TagSet:
    """The tags of a task, and how the gold tags of a sample are read."""

    def __init__(self, settings: WordSettings, task_name: str, gold: GoldTags = word_tags) -> None:
        if not settings.labels:
            raise MeristemError(f"task {task_name}: its labels are not known; they come from the training data")
        self.labels, self.gold = settings.labels, gold
        self.label_ids = {label: index for index, label in enumerate(settings.labels)}
        self.default_tag = settings.default_tag or ("O" if "O" in self.label_ids else settings.labels[0])

    def golds(self, samples: Sequence[Sample]) -> list[Sequence[str]]:
        """The gold tags of samples that all have them."""
        return [self.gold(sample) or () for sample in samples]

    def gold_ids(self, sample: Sample) -> Positions | None:
        """The ids of the gold tags, −1 for ignored and unseen ones; None if the sample has no gold."""
        tags = self.gold(sample)
        return None if tags is None else np.array([self.label_ids.get(tag, -1) for tag in tags], np.int64)

    def unseen(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about tags that do not occur in the training data."""
        golds = ((tag, sample.location) for sample in samples for tag in self.gold(sample) or ())
        return unseen_label_warnings("tag", {*self.label_ids, IGNORED_TAG}, golds, unit="word")

    def merge(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], window_tags: Sequence[WindowTags]
    ) -> list[TagPrediction]:
        """The tags of each sample: each word from its own window; words without tokens get the default tag."""
        tags = [[self.default_tag] * len(sample.inputs["words"]) for sample in samples]
        scores = [[0.0] * len(sample.inputs["words"]) for sample in samples]
        for piece, (tag_ids, probs) in zip(pieces, window_tags, strict=True):
            own, index = piece.features["own_words"], piece.sample_index
            for word, tag_id, prob in zip(piece.features["words"][own], tag_ids[own], probs[own], strict=True):
                tags[index][word], scores[index][word] = self.labels[tag_id], float(prob)
        return [TagPrediction(tags=tuple(row), scores=tuple(probs)) for row, probs in zip(tags, scores, strict=True)]

    def describe(self, sample: Sample) -> str:
        """Each word with its tag."""
        words = sample.inputs["words"]
        return "  ".join(
            f"{word}/{tag}" for word, tag in zip(words, self.gold(sample) or [IGNORED_TAG] * len(words), strict=True)
        )
