"""What tasks share whose answer is a label, several labels or a number: learning them, the loss, the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Head, Hidden, Model, Outcome
from meristem.blocks.correct import is_correct
from meristem.blocks.precision import wide
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.metrics import labels as metrics
from meristem.task import Confusion, Indices, Metrics, Mistake, Sample
from meristem.tasks._golds import (
    LARGEST_NUMBER,
    Problem,
    Weights,
    counted,
    labels_of,
    number_of,
    order_of,
    problem_of,
    weights_of,
)
from meristem.tasks._reading import Pooling, Reading, ReadingSettings
from meristem.tokenizers.tokenizer import Tokenizer

Bounded = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Answer = NDArray[np.float32]
"""A probability for each label, or one number."""


class LabelSettings(ReadingSettings):
    """What a task with labels can be told."""

    needs: ClassVar[Dependences] = {
        "range": (when("problem", None, "regression"),),
        "between": (when("problem", None, "multiple"),),
        "threshold": (when("problem", None, "multiple"),),
        "class_weights": (when("problem", None, "single", "multiple"),),
    }

    problem: Problem | None = None
    """One label, several, or a number; found from the data unless set."""
    labels: tuple[str, ...] = ()
    """In the order of their scores; those of the training data."""
    range: tuple[Bounded, Bounded] | None = None
    """Regression: the lowest and highest number in the training data."""
    between: str = Field(",", min_length=1)
    """Several labels: what stands between them in a column."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """Several labels: how probable one must be to be given."""
    class_weights: Weights = "none"
    """How much an example of each label counts; balanced makes all labels count the same in sum."""
    pooling: Pooling | None = None
    """The state that is read: the one that stands for the whole unless set; mean or max of all."""


class Labels(Reading):
    """p(label | text), read off one vector."""

    Settings = LabelSettings
    quantity: ClassVar[str] = "score"
    """What a number is called in answers."""

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        if settings.problem is None:
            raise MeristemError(f"task {settings.name}: its labels are not known yet; they come from training data")
        self.number = {label: number for number, label in enumerate(settings.labels)}
        classes = 1 if settings.problem == "regression" else len(settings.labels)
        self.heads = {**self.reading_heads(), **self.label_heads(classes)}
        self.weights = self.weights_with_lm
        self.metric = {"single": "accuracy", "multiple": "f1_micro", "regression": "spearman"}[settings.problem]

    @property
    def head_kind(self) -> str:
        """As transformers has it: a bare map on a causal model, a pooler under it elsewhere."""
        return "scores" if self.settings.way == "causal" else "pooled"

    def label_heads(self, classes: int) -> dict[str, Head]:
        """What makes scores of a vector."""
        return {self.name: self.sized(self.head_kind, classes)}

    # ------------------------------------------------------------ what data tell

    @classmethod
    def learn(cls, settings: LabelSettings, samples: Sequence[Sample]) -> LabelSettings:
        """The kind of problem, the labels in order, and how much each counts."""
        problem = settings.problem or problem_of([sample.gold for sample in samples])
        _refuse_of_another_problem(settings.model_copy(update={"problem": problem}))
        if problem == "regression":
            numbers = [number_of(sample) for sample in samples]
            reach = settings.range or (min(numbers), max(numbers))
            return settings.model_copy(update={"problem": problem, "range": reach})
        found = counted(samples, problem, settings.between, settings.labels)
        if len(found) < 2 and problem == "single":
            only = next(iter(found), None)
            raise MeristemError(f"data.label: every training sample has the label {only!r}: nothing to tell apart")
        labels = settings.labels or tuple(sorted(found, key=order_of))
        if not labels:
            raise MeristemError("data.label: no training sample has any label")
        weights = weights_of(settings.class_weights, labels, found, len(samples), problem)
        return settings.model_copy(update={"problem": problem, "labels": labels, "class_weights": weights})

    def strange(self, samples: Sequence[Sample]) -> list[str]:
        """Labels that training data do not have: they can only be got wrong."""
        if self.settings.problem == "regression":
            return []
        where: dict[str, list[str]] = {}
        for sample in samples:
            for label in self._labels(sample):
                if label not in self.number:
                    where.setdefault(label, []).append(sample.place)
        return [
            f"{places[0]}: the label {label!r} does not occur in training data; "
            f"{len(places):,} sample{'s' * (len(places) > 1)} with it can only be got wrong"
            for label, places in where.items()
        ]

    def _labels(self, sample: Sample) -> tuple[str, ...]:
        return labels_of(sample, self.settings.problem, self.settings.between)

    # ------------------------------------------------------------ learning

    def goal(self, sample: Sample) -> dict[str, Any]:
        """What the loss reads of a sample: nothing where its label is unknown."""
        s = self.settings
        if sample.gold is None:
            return {}
        if s.problem == "regression":
            low, high = s.range
            return {"values": np.array([(number_of(sample) - low) / ((high - low) or 1.0)], np.float32)}
        given = [self.number[label] for label in self._labels(sample) if label in self.number]
        if s.problem == "multiple":
            wanted = np.zeros((1, len(s.labels)), np.float32)
            wanted[0, given] = 1.0
            return {"values": wanted}
        return {"values": np.array(given, np.int64)} if given else {}

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[samples, classes]: the vectors of a sample's rows added, then the head."""
        rows = self.pooled(hidden, batch, self.settings.pooling, batch.goals["read"]["at"])
        if len(batch.ids) < len(rows):
            rows = rows.new_zeros(len(batch.ids), rows.shape[1]).index_add(0, batch.owner, rows)
        return wide(model.heads[self.name](rows))

    def wanted(self, batch: Batch) -> Tensor | None:
        """The positions that stand for the whole, where nothing else is read."""
        return batch.goals["read"]["at"] if self.settings.pooling is None and not self.settings.lm else None

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the label, of each label, or the squared distance."""
        scores = self.scores(model, hidden, batch)
        goal = batch.goals.get(self.name)
        if goal is None or not len(goal["at"]):
            return self.with_lm(model, hidden, batch, Outcome(sums={self.name: scores.sum() * 0.0}))
        scores = scores[batch.owner[goal["at"] // batch.inputs["tokens"].shape[1]]]
        values = goal["values"]
        match self.settings.problem:
            case "regression":
                lost = (scores[:, 0] - values).square().sum()
            case "multiple":
                each = F.binary_cross_entropy_with_logits(
                    scores, values, pos_weight=self._shares(scores), reduction="none"
                )
                lost = each.mean(1).sum()
            case _:
                lost = F.cross_entropy(scores, values, weight=self._shares(scores), reduction="sum")
        outcome = Outcome(sums={self.name: lost})
        if self.settings.problem == "single":
            right = is_correct(scores, values).sum().float()
            outcome.metrics["accuracy"] = (right, torch.tensor(float(len(values)), device=right.device))
        return self.with_lm(model, hidden, batch, outcome)

    def _shares(self, scores: Tensor) -> Tensor | None:
        weights = self.settings.class_weights
        if not isinstance(weights, dict) or not torch.is_grad_enabled():
            return None  # what is measured is measured plainly
        return scores.new_tensor([weights.get(label, 1.0) for label in self.settings.labels])

    # ------------------------------------------------------------ answers

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Answer]:
        """Probabilities, or the number in the data's own range."""
        scores = self.scores(model, hidden, batch)
        match self.settings.problem:
            case "regression":
                low, high = self.settings.range
                scores = scores * ((high - low) or 1.0) + low
            case "multiple":
                scores = scores.sigmoid()
            case _:
                scores = scores.softmax(1)
        return list(scores.cpu().numpy())

    def said(self, answer: Answer) -> Any:
        """The answer as golds are: a label, a tuple of labels, a number."""
        s = self.settings
        if s.problem == "regression":
            return float(answer[0])
        if s.problem == "multiple":
            return tuple(label for label, p in zip(s.labels, answer, strict=True) if p >= s.threshold)
        return s.labels[int(answer.argmax())]

    def right(self, sample: Sample) -> Any:
        """A gold in that form."""
        s = self.settings
        if s.problem == "regression":
            return number_of(sample)
        given = self._labels(sample)
        return given if s.problem == "multiple" else given[0]

    def score(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Metrics:
        """Accuracy, F1 and Matthews; micro and macro F1 of several; Pearson and Spearman of numbers."""
        golds, said = [self.right(sample) for sample in samples], [self.said(answer) for answer in answers]
        match self.settings.problem:
            case "regression":
                return metrics.numbers(golds, said)
            case "multiple":
                return metrics.several(golds, said, self.settings.labels)
        return metrics.single(golds, said, self.settings.labels)

    def resampled(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same from counts, which is fast."""
        golds, said = [self.right(sample) for sample in samples], [self.said(answer) for answer in answers]
        return metrics.resampled(self.settings.problem, golds, said, self.settings.labels)

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """F1 goes by the samples of a label, where a text has one."""
        if self.settings.problem != "single":
            return {}
        return metrics.support([self.right(sample) for sample in samples], self.settings.labels)

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The commonest label, or the mean."""
        known, golds = ([self.right(sample) for sample in some] for some in (train, samples))
        return metrics.baselines(self.settings.problem, known, golds, self.settings.labels)

    def confusion(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Confusion | None:
        """Label by label, where a text has one."""
        if self.settings.problem != "single":
            return None
        golds, said = [self.right(sample) for sample in samples], [self.said(answer) for answer in answers]
        return Confusion.of_labels(tuple(dict.fromkeys((*self.settings.labels, *golds))), golds, said)

    def mistakes(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong labels by their probability; numbers by how far off they are."""
        found = []
        for answer, sample in zip(answers, samples, strict=True):
            gold, said = self.right(sample), self.said(answer)
            if self.settings.problem == "regression":
                sure = abs(gold - said)
                gold, said = f"{gold:g}", f"{said:.2f}"
            elif gold == said:
                continue
            else:
                sure = float(answer.max())
            found.append(
                Mistake(
                    place=sample.place,
                    given=" | ".join(map(str, sample.given.values())),
                    gold=str(gold),
                    said=str(said),
                    confidence=sure,
                )
            )
        return sorted(found, key=lambda one: -one.confidence)

    def shown(self, answer: Answer, sample: Sample) -> Any:
        """{label, score}; a list of them where several may hold."""
        s = self.settings
        if s.problem == "regression":
            return {"label": self.quantity, "score": float(answer[0])}
        if s.problem == "multiple":
            return [{"label": label, "score": float(answer[self.number[label]])} for label in self.said(answer)]
        return {"label": self.said(answer), "score": float(answer.max())}

    def ranked(self, answer: Answer, sample: Sample, top: int) -> list[Any]:
        """The likeliest labels; a number has no others."""
        if self.settings.problem == "regression":
            return [self.shown(answer, sample)]
        best = np.argsort(-answer, kind="stable")[:top].tolist()
        return [{"label": self.settings.labels[number], "score": float(answer[number])} for number in best]


def _refuse_of_another_problem(settings: LabelSettings) -> None:
    """Refuse settings of another kind of problem than the one that the labels turned out to be."""
    for field, needs in LabelSettings.needs.items():
        given = getattr(settings, field) != LabelSettings.model_fields[field].default
        if given and not all(need.met(settings) for need in needs):
            wanted = " or ".join(str(one) for one in needs[0].conditions[0].values if one is not None)
            raise MeristemError(
                f"task.{field}: has no effect, since by its labels this is a {settings.problem} problem; "
                f"set task.problem={wanted} if it is one, or leave it out"
            )
