"""Span: a question and a passage → the stretch of the passage that answers it, or none (SPEC C4)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Draws, Hidden, Model, Outcome, Row
from meristem.blocks.precision import wide
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.metrics import spans as metrics
from meristem.task import Confusion, Indices, Metrics, Mistake, Piece, Sample
from meristem.tasks._reader import Text
from meristem.tasks._reading import Reading, ReadingSettings
from meristem.tasks._spans import characters_of, tokens_of
from meristem.tasks._windows import windows
from meristem.tokenizers.tokenizer import Tokenizer

NEVER = float("-inf")
PARTS = "question", "passage"
SPARE = 3
"""Stretches looked at for each that is kept: those that cut the same words are one."""


class SpanSettings(ReadingSettings):
    """What span can be told."""

    needs: ClassVar[Dependences] = {
        "no_answer_bias": (when("no_answer", None, True),),
    }

    name: Literal["span"] = "span"
    """The task's name."""
    stride: int = Field(128, ge=1)
    """How many tokens behind the last one each window of a long passage begins; less where answers would be cut."""
    question_length: int = Field(64, ge=1)
    """Tokens of the question at the most; it never takes more than half of the room."""
    answer_length: int = Field(30, ge=1)
    """Tokens of an answer at the most."""
    best: int = Field(20, ge=1)
    """How many stretches of each window are compared."""
    no_answer: bool | None = None
    """Whether a passage may hold no answer; found from the training data unless set."""
    no_answer_bias: float = 0.0
    """Added to the score of "no answer" when it is compared with the best stretch."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What one window offers: the score of "no answer", and its best stretches by tokens of the passage."""

    nothing: float
    scores: tuple[float, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A stretch of the passage, `passage[start:end] == text`; empty where there is no answer."""

    text: str
    start: int
    end: int
    score: float
    """Its probability among everything that was compared."""
    others: tuple[Answer, ...] = ()
    """The next best ones."""


class Span(Reading):
    """p(first token) · p(last token) over the passage, and over the summary position for "no answer"."""

    Settings = SpanSettings
    name = "span"
    shape = "span"
    metric = "f1"

    def __init__(self, settings: SpanSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self.heads = {**self.reading_heads(), self.name: self.sized("tags", 2)}
        self.weights = self.weights_with_lm

    @classmethod
    def learn(cls, settings: SpanSettings, samples: Sequence[Sample]) -> SpanSettings:
        """Whether some questions have no answer."""
        found = any(sample.gold is not None and not len(sample.gold) for sample in samples)
        no_answer = found if settings.no_answer is None else settings.no_answer
        return settings.model_copy(update={"no_answer": no_answer})

    @classmethod
    def texts(cls, sample: Sample) -> list[str]:
        """The question and the passage."""
        return [str(sample.given[part]) for part in PARTS]

    def strange(self, samples: Sequence[Sample]) -> list[str]:
        """Questions without answer where training data have none."""
        bare = [sample.place for sample in samples if sample.gold is not None and not len(sample.gold)]
        if self.settings.no_answer or not bare:
            return []
        return [f"{bare[0]}: no answer, and every question of the training data has one; {len(bare)} can only be wrong"]

    # ------------------------------------------------------------ rows

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """The question with each window of its passage."""
        questions, passages = (self.reader.encode([str(one.given[part]) for one in samples]) for part in PARTS)
        room, out = self.reader.room(2), []
        for number, (question, passage) in enumerate(zip(questions, passages, strict=True)):
            asked = question.cut(0, min(self.settings.question_length, room // 2))
            target = self._target(samples[number], passage)
            left = room - len(asked.ids)
            stride = min(self.settings.stride, left - min(self.settings.answer_length, left // 2))
            spans = windows(len(passage.ids), left, stride)
            for window, (start, stop) in enumerate(spans):
                parts = {
                    "question": asked,
                    "passage": passage.cut(start, stop),
                    "whole": passage,
                    "start": start,
                    "target": target,
                }
                size = len(asked.ids) + stop - start + self.reader.length - room
                cut = 0 if window else len(question.ids) - len(asked.ids)
                out.append(Piece(sample=number, size=size, parts=parts, cut=cut))
        return out

    @staticmethod
    def _target(sample: Sample, passage: Text) -> tuple[int, int] | tuple[()] | None:
        """First and last token of the answer, () where there is none; None where nothing can be learned."""
        if sample.gold is None:
            return None
        if not len(sample.gold):
            return ()
        answer, start = sample.gold[0]
        return tokens_of(passage.offsets, start, start + len(answer))

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Where the answer stands in this window; the position that stands for the whole where it does not."""
        parts: dict[str, Any] = row.notes["piece"].parts
        framed = self.reader.frame(parts["question"], parts["passage"])
        tokens = len(parts["passage"].ids)
        places = framed.starts[1] + np.arange(tokens)
        nowhere = 0 if framed.summary in places else framed.summary  # where nothing stands behind the passage
        goals: dict[str, Any] = {"read": {"at": np.append(places, nowhere)}, "nowhere": {"at": [nowhere]}}
        target = parts["target"]
        if target is not None:
            first, last = (place - parts["start"] for place in target) if target else (-1, -1)
            found = places[[first, last]] if first >= 0 and last < tokens else np.array([nowhere] * 2)
            goals[self.name] = {"at": np.array([nowhere]), "first": found[:1], "last": found[1:]}
        goals |= self.lm_goal(framed)
        notes = {**row.notes, "base": framed.starts[1]}
        return Row(inputs=framed.inputs, goals=goals, notes=notes, sample=row.sample)

    # ------------------------------------------------------------ learning

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, Tensor]:
        """[B, T] each: how well an answer begins and ends at a position; −∞ outside the passage and the summary."""
        at, shape = batch.goals["read"]["at"], batch.inputs["tokens"].shape
        found = wide(model.heads[self.name](self.read_at(hidden, at)))
        whole = found.new_full((shape.numel(), 2), NEVER).index_copy(0, at, found).view(*shape, 2)
        return whole[..., 0], whole[..., 1]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the first and of the last token, their mean, for each window."""
        begin_BT, end_BT = self.scores(model, hidden, batch)
        goal = batch.goals.get(self.name)
        if goal is None:
            outcome = Outcome(sums={self.name: hidden.last.sum() * 0.0})
        else:
            rows = goal["at"] // begin_BT.shape[1]
            lost = [
                F.cross_entropy(scores[rows], goal[side], reduction="sum")
                for scores, side in ((begin_BT, "first"), (end_BT, "last"))
            ]
            outcome = Outcome(sums={self.name: (lost[0] + lost[1]) / 2})
        return self.with_lm(model, hidden, batch, outcome)

    # ------------------------------------------------------------ answers

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Candidate]:
        """The best stretches of each window, first token before last and not too far from it."""
        begin_BT, end_BT = self.scores(model, hidden, batch)
        nowhere = batch.goals["nowhere"]["at"]
        nothing_B = (begin_BT.flatten()[nowhere] + end_BT.flatten()[nowhere]).tolist()
        begin, end = (scores.flatten().index_fill(0, nowhere, NEVER).view_as(scores) for scores in (begin_BT, end_BT))
        reach = min(self.settings.answer_length, begin.shape[1])
        ends_BTL = F.pad(end, (0, reach - 1), value=NEVER).unfold(1, reach, 1)
        pairs = (begin[..., None] + ends_BTL).flatten(1)
        found = pairs.topk(min(self.settings.best * SPARE, pairs.shape[1]), 1)
        out = []
        for row, (scores, places) in enumerate(zip(found.values.tolist(), found.indices.tolist(), strict=True)):
            note = batch.notes[row]
            moved = note["piece"].parts["start"] - note["base"]
            kept = [
                (s, p // reach + moved, p // reach + p % reach + moved) for s, p in zip(scores, places, strict=True)
            ]
            kept = [one for one in kept if one[0] > NEVER]
            spans = tuple((first, last) for _, first, last in kept)
            out.append(Candidate(nothing=nothing_B[row], scores=tuple(s for s, _, _ in kept), spans=spans))
        return out

    def gather(self, samples: Sequence[Sample], pieces: Sequence[Piece], candidates: Sequence[Any]) -> list[Answer]:
        """Windows made one: scores are compared, then made probabilities over everything that was compared."""
        found: list[list[tuple[Piece, Candidate]]] = [[] for _ in samples]
        for piece, candidate in zip(pieces, candidates, strict=True):
            found[piece.sample].append((piece, candidate))
        return [self._merged(str(one.given["passage"]), some) for one, some in zip(samples, found, strict=True)]

    def _merged(self, passage: str, found: Sequence[tuple[Piece, Candidate]]) -> Answer:
        best: dict[tuple[int, int], float] = {}
        for piece, candidate in found:
            offsets = piece.parts["whole"].offsets
            for score, (first, last) in zip(candidate.scores, candidate.spans, strict=True):
                place = characters_of(passage, offsets, first, last)
                if place[0] < place[1]:
                    best[place] = max(score, best.get(place, NEVER))
        if self.settings.no_answer or not best:  # the window that is surest of an answer speaks for all
            nothing = min((candidate.nothing for _, candidate in found), default=0.0)
            best[0, 0] = nothing + self.settings.no_answer_bias
        ranked = sorted(best, key=lambda place: (-best[place], place))
        chances = torch.tensor([best[place] for place in ranked], dtype=torch.float64).softmax(0).tolist()
        answers = [
            Answer(text=passage[start:end], start=start, end=end, score=chance)
            for (start, end), chance in zip(ranked[: self.settings.best], chances, strict=False)
        ]
        top = answers[0]
        return Answer(text=top.text, start=top.start, end=top.end, score=top.score, others=tuple(answers[1:]))

    # ------------------------------------------------------------ their worth

    def score(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Metrics:
        """Exact match and F1 as SQuAD counts them."""
        return metrics.score([_golds(sample) for sample in samples], [one.text for one in answers])

    def resampled(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same from each question's numbers."""
        return metrics.resampled([_golds(sample) for sample in samples], [one.text for one in answers])

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Questions with an answer and without one are counted apart."""
        return metrics.support([_golds(sample) for sample in samples])

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Saying nothing."""
        return metrics.baselines([_golds(sample) for sample in samples])

    def confusion(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Confusion | None:
        """Where some questions have no answer: whether one was given."""
        if not self.settings.no_answer:
            return None
        counts = np.zeros((2, 2), np.int64)
        for answer, sample in zip(answers, samples, strict=True):
            counts[int(not len(sample.gold)), int(not answer.text)] += 1
        return Confusion.of_counts(("answer", "no answer"), counts)

    def mistakes(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> list[Mistake]:
        """Answers that are none of the golds."""
        found = [
            Mistake(
                place=sample.place,
                given=f"{sample.given['question']} | {sample.given['passage']}",
                gold=" | ".join(dict.fromkeys(_golds(sample))) or "no answer",
                said=answer.text or "no answer",
                confidence=answer.score,
            )
            for answer, sample in zip(answers, samples, strict=True)
            if not any(metrics.compared(gold, answer.text)[0] for gold in _golds(sample) or ("",))
        ]
        return sorted(found, key=lambda one: -one.confidence)

    def shown(self, answer: Answer, sample: Sample) -> dict[str, Any]:
        """{answer, score, start, end}; an empty answer where there is none."""
        return {"answer": answer.text, "score": answer.score, "start": answer.start, "end": answer.end}

    def ranked(self, answer: Answer, sample: Sample, top: int) -> list[Any]:
        """The n best."""
        return [self.shown(one, sample) for one in (answer, *answer.others)[:top]]

    def told(self, sample: Sample) -> str:
        """The question, its answer, and the passage."""
        answers = "unknown" if sample.gold is None else " / ".join(_golds(sample)) or "no answer"
        return f"{sample.given['question']}  →  {answers}  |  {sample.given['passage']}"

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """A question and a passage."""
        if isinstance(given, str) or any(not isinstance(given.get(part), str) for part in PARTS):
            raise MeristemError('task span: give both {"question": "…", "passage": "…"}')
        return Sample(given={**{part: given[part] for part in PARTS}, "id": str(given.get("id", ""))})

    def commands(self, place: str, sample: Sample) -> list[str]:
        """A question about a passage."""
        question, passage = (shlex.quote(str(sample.given[part])) for part in PARTS)
        return [f"meristem predict {place} --question {question} --passage {passage}"]


def _golds(sample: Sample) -> list[str]:
    return [str(text) for text, _ in sample.gold]
