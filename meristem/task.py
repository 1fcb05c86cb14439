"""What a task is: an objective that learns from labelled samples, answers new ones, and is judged by its answers."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meristem.batch import Batch, Hidden, Model, Objective
from meristem.settings import Settings

Indices = NDArray[np.int64]
Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One example: what is given, what is right where that is known, and where it stands."""

    given: Mapping[str, Any]
    """By name: text, text_b, words, question, passage, choices, turns, source, picture."""
    gold: Any = None
    place: str = ""
    """`file:line` or the like, for messages."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row it was read from, by column, where its other columns are still wanted."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a batch is counted in: a sample, or one window of a long one."""

    sample: int
    """The place of its sample in the list it came from."""
    size: int
    """Tokens, special ones included: batches are made of like sizes."""
    parts: Mapping[str, Any]
    """What `prepare` makes rows of: ids, offsets, bounds."""
    cut: int = 0
    """Tokens that did not fit and are not read by any piece of the sample."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An answer that was wrong, and how sure the model was of it."""

    place: str
    given: str
    gold: str
    said: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How often what was right was taken for what, as the pairs that occur: a table of 100,000 labels has 80 GB."""

    labels: tuple[str, ...]
    gold_ids: NDArray[np.int64]
    """Per pair the place of its gold among the labels; pairs are sorted by gold, then by answer."""
    answer_ids: NDArray[np.int64]
    times: NDArray[np.int64]
    """How often each pair occurs."""

    @classmethod
    def of_labels(cls, labels: Sequence[str], golds: Sequence[str], answers: Sequence[str]) -> Confusion:
        """Counted from a gold and an answer for each sample."""
        place = {label: number for number, label in enumerate(labels)}
        gold_ids, answer_ids = (np.array([place[one] for one in some], np.int64) for some in (golds, answers))
        pairs, times = np.unique(gold_ids * len(labels) + answer_ids, return_counts=True)
        gold_ids, answer_ids = np.divmod(pairs, max(1, len(labels)))
        return cls(labels=tuple(labels), gold_ids=gold_ids, answer_ids=answer_ids, times=times.astype(np.int64))

    @classmethod
    def of_counts(cls, labels: Sequence[str], counts: NDArray[np.int64]) -> Confusion:
        """From a table: golds in rows, answers in columns."""
        gold_ids, answer_ids = np.nonzero(counts)
        times = counts[gold_ids, answer_ids]
        return cls(labels=tuple(labels), gold_ids=gold_ids, answer_ids=answer_ids, times=times)

    @property
    def counts(self) -> NDArray[np.int64]:
        """As a table [golds, answers]: for few labels only."""
        table = np.zeros((len(self.labels), len(self.labels)), np.int64)
        table[self.gold_ids, self.answer_ids] = self.times
        return table


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A task's numbers on one set: what is cited, how sure it is, and where it went wrong."""

    metrics: Metrics
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The middle 95 % of what resampled sets give."""
    samples: int = 0
    signature: str = ""
    """How a metric was computed, where people cite that with it (sacrebleu)."""
    confusion: Confusion | None = None
    mistakes: tuple[Mistake, ...] = ()


class Task(Objective):
    """An objective over labelled samples. Its settings hold what was learned about the data (labels), so that a run
    can be opened without it."""

    shape: str
    """What its samples are, in labelled/shapes: text, pair, words, span, choice, turns, written, picture."""
    ways: ClassVar[frozenset[str]]
    """Abilities of which a backbone must have one: bidirectional, causal, both_directions, encoder_decoder."""
    settings: Any
    """What it was told, and what it learned of the data."""
    metric: str
    """The one a run is judged by, and its best checkpoint chosen by; `loss` where answers take too long."""
    needs = frozenset()

    @classmethod
    def shaped(cls, settings: Any) -> str:
        """The shape of its samples with these settings; most tasks have but one."""
        return cls.shape

    @classmethod
    def learn(cls, settings: Any, samples: Sequence[Sample]) -> Settings:
        """The settings with what only training data tell: label sets, the range of a score."""
        return settings  # type: ignore[no-any-return]  # of the task's own class

    @classmethod
    def marks(cls, settings: Any, tokenizer: Any) -> Any:
        """The tokenizer with tokens that the task needs besides its own."""
        return tokenizer

    def strange(self, samples: Sequence[Sample]) -> list[str]:
        """Sentences about samples whose gold the task has never seen in training, with their places."""
        return []

    @classmethod
    def texts(cls, sample: Sample) -> list[str]:
        """The words in a sample, for a tokenizer that is trained on them."""
        parts = [value for value in sample.given.values() if isinstance(value, str | list | tuple)]
        return [part if isinstance(part, str) else " ".join(map(str, part)) for part in parts]

    @abstractmethod
    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Samples cut to what fits a model, in their order; all texts are encoded at once."""

    @abstractmethod
    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """One candidate for each piece of the batch, as plain data."""

    def gather(self, samples: Sequence[Sample], pieces: Sequence[Piece], candidates: Sequence[Any]) -> list[Any]:
        """One answer for each sample; where each is one piece, its candidate."""
        return list(candidates)

    def write(self, model: Model, samples: Sequence[Sample]) -> list[Any] | None:
        """Answers that are written rather than read off; none where `decode` and `gather` make them."""
        return None

    @abstractmethod
    def score(self, answers: Sequence[Any], samples: Sequence[Sample]) -> Metrics:
        """What people cite, over the whole set, with the libraries they cite it from; samples all have a gold."""

    def resampled(self, answers: Sequence[Any], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same numbers on a resampled set, for intervals; a thousand calls of it should take seconds."""
        return lambda at: self.score([answers[i] for i in at], [samples[i] for i in at])

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Per metric how many things it is a mean over (positives, entities), where those are not the samples."""
        return {}

    def signature(self, samples: Sequence[Sample]) -> str:
        """How its numbers on these samples were made, where that is cited with them."""
        return ""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The numbers that need no model, by what is always said: the commonest label, the mean, nothing."""
        return {}

    def confusion(self, answers: Sequence[Any], samples: Sequence[Sample]) -> Confusion | None:
        """What was taken for what, for tasks with labels."""
        return None

    def mistakes(self, answers: Sequence[Any], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong answers, the most confident first."""
        return []

    @abstractmethod
    def shown(self, answer: Any, sample: Sample) -> Any:
        """An answer in the shape people know from pipelines: {label, score}, {answer, score, start, end}, …"""

    def ranked(self, answer: Any, sample: Sample, top: int) -> list[Any]:
        """The likeliest answers, each as `shown` shows it, the best first; what it shows where there are no others."""
        shown = self.shown(answer, sample)
        return shown if isinstance(shown, list) else [shown]

    def told(self, sample: Sample) -> str:
        """A sample in one or two lines, as it was understood."""
        given = " | ".join(str(value) for value in sample.given.values())
        return f"{given}  →  {sample.gold}"

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """What a person gives, as a sample without gold."""
        return Sample(given={self.shape: given} if isinstance(given, str) else given)

    def commands(self, place: str, sample: Sample) -> list[str]:
        """What a person may type to see it work on such a sample."""
        given = sample.given.get("text", next(iter(sample.given.values())))
        return [f"meristem predict {place} {shlex.quote(str(given))}"]
