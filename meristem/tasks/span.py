"""Extractive question answering (SQuAD): a question and a passage → the answer span of the passage, or no answer."""

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

from meristem.blocks.precision import at_least_float32
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.encoded_input import TokenizedText
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import ConfusionMatrix, Indices, Metrics, Mistake, Sample, SamplePiece
from meristem.metrics import squad_f1 as metrics
from meristem.tasks._char_spans import char_span_to_tokens, token_span_to_chars
from meristem.tasks._encoder_task import EncoderTask, EncoderTaskSettings
from meristem.tasks._sliding_windows import sliding_windows
from meristem.tokenizers.tokenizer import Tokenizer

NEG_INF = float("-inf")
TEXT_FIELDS = "question", "passage"
CANDIDATES_PER_ANSWER = 3
"""Token spans considered for each answer kept: several may extend to the same words."""


class SpanTaskSettings(EncoderTaskSettings):
    """Settings of extractive question answering."""

    renamed: ClassVar[dict[str, str]] = {
        "question_length": "max_question_length",
        "answer_length": "max_answer_length",
        "best": "n_best_size",
        "no_answer": "allow_no_answer",
    }

    needs: ClassVar[SettingConditions] = {
        "no_answer_bias": (when("allow_no_answer", None, True),),
    }

    name: Literal["span"] = "span"
    """The task's name."""
    stride: int = Field(128, ge=1)
    """Tokens between the starts of two windows of a long passage; fewer if answers would be cut."""
    max_question_length: int = Field(64, ge=1)
    """Maximum tokens of the question; it never takes more than half of the sequence."""
    max_answer_length: int = Field(30, ge=1)
    """Maximum tokens of an answer."""
    n_best_size: int = Field(20, ge=1)
    """Number of answer candidates per window (n best)."""
    allow_no_answer: bool | None = None
    """Whether questions may have no answer (SQuAD 2.0); detected from the training data if not set."""
    no_answer_bias: float = 0.0
    """Added to the score of "no answer" before it is compared with the best span."""


@dataclass(frozen=True, kw_only=True)
class SpanCandidate:
    """The candidates of one window: the score of "no answer", and its best spans in tokens of the passage."""

    no_answer_score: float
    scores: tuple[float, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class SpanAnswer:
    """A span of the passage, `passage[start:end] == text`; empty for "no answer"."""

    text: str
    start: int
    end: int
    score: float
    """Its probability among all candidates."""
    others: tuple[SpanAnswer, ...] = ()
    """The next best answers."""


class SpanTask(EncoderTask):
    """p(first token) · p(last token) over the passage, and over the summary position for "no answer"."""

    Settings = SpanTaskSettings
    name = "span"
    sample_type = "span"
    metric = "f1"

    def __init__(self, settings: SpanTaskSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self.heads = {**self.encoder_heads(), self.name: self.sized_head("tags", 2)}
        self.loss_weights = self.task_loss_weights

    @classmethod
    def fit_settings(cls, settings: SpanTaskSettings, samples: Sequence[Sample]) -> SpanTaskSettings:
        """The settings with `no_answer` determined from the training samples."""
        some_unanswerable = any(sample.gold is not None and not len(sample.gold) for sample in samples)
        no_answer = some_unanswerable if settings.allow_no_answer is None else settings.allow_no_answer
        return settings.model_copy(update={"allow_no_answer": no_answer})

    @classmethod
    def sample_texts(cls, sample: Sample) -> list[str]:
        """The question and the passage."""
        return [str(sample.inputs[field]) for field in TEXT_FIELDS]

    def unseen_label_warnings(self, samples: Sequence[Sample]) -> list[str]:
        """Warning about questions without answer if the training data have none."""
        unanswerable = [sample.location for sample in samples if sample.gold is not None and not len(sample.gold)]
        if self.settings.allow_no_answer or not unanswerable:
            return []
        return [
            f"{unanswerable[0]}: no answer, but every question of the training data has one; {len(unanswerable)} "
            "cannot be predicted correctly"
        ]

    # ------------------------------------------------------------ rows

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The question with each window of its passage."""
        questions, passages = (
            self.template.tokenize([str(sample.inputs[field]) for sample in samples]) for field in TEXT_FIELDS
        )
        max_tokens, pieces = self.template.max_text_tokens(2), []
        for index, (question, passage) in enumerate(zip(questions, passages, strict=True)):
            short_question = question.slice(0, min(self.settings.max_question_length, max_tokens // 2))
            target = self._answer_tokens(samples[index], passage)
            passage_tokens = max_tokens - len(short_question.ids)
            stride = min(
                self.settings.stride, passage_tokens - min(self.settings.max_answer_length, passage_tokens // 2)
            )
            spans = sliding_windows(len(passage.ids), passage_tokens, stride)
            for window, (start, stop) in enumerate(spans):
                parts = {
                    "question": short_question,
                    "passage": passage.slice(start, stop),
                    "whole": passage,
                    "start": start,
                    "target": target,
                }
                size = len(short_question.ids) + stop - start + self.template.num_special_tokens(2)
                num_cut = 0 if window else len(question.ids) - len(short_question.ids)
                pieces.append(SamplePiece(sample_index=index, num_tokens=size, features=parts, num_truncated=num_cut))
        return pieces

    @staticmethod
    def _answer_tokens(sample: Sample, passage: TokenizedText) -> tuple[int, int] | tuple[()] | None:
        """First and last token of the answer, () for "no answer"; None if there is no gold or it cannot be located."""
        if sample.gold is None:
            return None
        if not len(sample.gold):
            return ()
        answer, start = sample.gold[0]
        return char_span_to_tokens(passage.offsets, start, start + len(answer))

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The target is the answer span in this window, or the "no answer" position if it is not in this window."""
        parts: dict[str, Any] = row.metadata["piece"].features
        encoded = self.template.build_input(parts["question"], parts["passage"])
        num_tokens = len(parts["passage"].ids)
        positions = encoded.text_starts[1] + np.arange(num_tokens)
        # the summary position is in the passage if no special token follows it
        no_answer_position = 0 if encoded.summary_position in positions else encoded.summary_position
        goals: dict[str, Any] = {
            "read": {"at": np.append(positions, no_answer_position)},
            "nowhere": {"at": [no_answer_position]},
        }
        target = parts["target"]
        if target is not None:
            first, last = (position - parts["start"] for position in target) if target else (-1, -1)
            answer_positions = (
                positions[[first, last]] if first >= 0 and last < num_tokens else np.array([no_answer_position] * 2)
            )
            goals[self.name] = {
                "at": np.array([no_answer_position]),
                "first": answer_positions[:1],
                "last": answer_positions[1:],
            }
        goals |= self.lm_goal(encoded)
        notes = {**row.metadata, "base": encoded.text_starts[1]}
        return Row(inputs=encoded.inputs, targets=goals, metadata=notes, sample_id=row.sample_id)

    # ------------------------------------------------------------ training

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, Tensor]:
        """Start and end logits, [B, T] each; −∞ outside the passage and the "no answer" position."""
        positions, shape = batch.targets["read"]["at"], batch.inputs["tokens"].shape
        position_scores = at_least_float32(
            model.heads[self.name](self.states_at(hidden, positions, training=model.training))
        )
        score_grid = (
            position_scores.new_full((shape.numel(), 2), NEG_INF)
            .index_copy(0, positions, position_scores)
            .view(*shape, 2)
        )
        return score_grid[..., 0], score_grid[..., 1]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Mean of the cross-entropies of start and end position, for each window."""
        begin_BT, end_BT = self.scores(model, hidden, batch)
        goal = batch.targets.get(self.name)
        if goal is None:
            outcome = Outcome(loss_sums={self.name: hidden.last_hidden_state.sum() * 0.0})
        else:
            rows = goal["at"] // begin_BT.shape[1]
            losses = [
                F.cross_entropy(scores[rows], goal[side], reduction="sum")
                for scores, side in ((begin_BT, "first"), (end_BT, "last"))
            ]
            outcome = Outcome(loss_sums={self.name: (losses[0] + losses[1]) / 2})
        return self.add_lm_loss(model, hidden, batch, outcome)

    # ------------------------------------------------------------ predictions

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[SpanCandidate]:
        """The best spans of each window, at most `answer_length` tokens long."""
        begin_BT, end_BT = self.scores(model, hidden, batch)
        no_answer_positions = batch.targets["nowhere"]["at"]
        no_answer_B = (begin_BT.flatten()[no_answer_positions] + end_BT.flatten()[no_answer_positions]).tolist()
        begin, end = (
            scores.flatten().index_fill(0, no_answer_positions, NEG_INF).view_as(scores)
            for scores in (begin_BT, end_BT)
        )
        max_answer = min(self.settings.max_answer_length, begin.shape[1])
        ends_BTL = F.pad(end, (0, max_answer - 1), value=NEG_INF).unfold(1, max_answer, 1)
        pairs = (begin[..., None] + ends_BTL).flatten(1)
        top = pairs.topk(min(self.settings.n_best_size * CANDIDATES_PER_ANSWER, pairs.shape[1]), 1)
        candidates = []
        for row, (scores, flat_indices) in enumerate(zip(top.values.tolist(), top.indices.tolist(), strict=True)):
            row_notes = batch.metadata[row]
            shift = row_notes["piece"].features["start"] - row_notes["base"]
            spans_with_scores = [
                (score, flat_index // max_answer + shift, flat_index // max_answer + flat_index % max_answer + shift)
                for score, flat_index in zip(scores, flat_indices, strict=True)
            ]
            spans_with_scores = [scored_span for scored_span in spans_with_scores if scored_span[0] > NEG_INF]
            spans = tuple((first, last) for _, first, last in spans_with_scores)
            candidates.append(
                SpanCandidate(
                    no_answer_score=no_answer_B[row],
                    scores=tuple(score for score, _, _ in spans_with_scores),
                    spans=spans,
                )
            )
        return candidates

    def merge_pieces(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[SpanAnswer]:
        """The answer of each sample: candidates of all its windows ranked by score, with a softmax over them."""
        by_sample: list[list[tuple[SamplePiece, SpanCandidate]]] = [[] for _ in samples]
        for piece, candidate in zip(pieces, candidates, strict=True):
            by_sample[piece.sample_index].append((piece, candidate))
        return [
            self._merge_windows(str(sample.inputs["passage"]), sample_candidates)
            for sample, sample_candidates in zip(samples, by_sample, strict=True)
        ]

    def _merge_windows(self, passage: str, candidates: Sequence[tuple[SamplePiece, SpanCandidate]]) -> SpanAnswer:
        score_by_span: dict[tuple[int, int], float] = {}
        for piece, candidate in candidates:
            offsets = piece.features["whole"].offsets
            for score, (first, last) in zip(candidate.scores, candidate.spans, strict=True):
                char_span = token_span_to_chars(passage, offsets, first, last)
                if char_span[0] < char_span[1]:
                    score_by_span[char_span] = max(score, score_by_span.get(char_span, NEG_INF))
        if self.settings.allow_no_answer or not score_by_span:  # the window with the lowest "no answer" score decides
            no_answer_score = min((candidate.no_answer_score for _, candidate in candidates), default=0.0)
            score_by_span[0, 0] = no_answer_score + self.settings.no_answer_bias
        ranked_spans = sorted(score_by_span, key=lambda char_span: (-score_by_span[char_span], char_span))
        probs = (
            torch.tensor([score_by_span[char_span] for char_span in ranked_spans], dtype=torch.float64)
            .softmax(0)
            .tolist()
        )
        answers = [
            SpanAnswer(text=passage[start:end], start=start, end=end, score=prob)
            for (start, end), prob in zip(ranked_spans[: self.settings.n_best_size], probs, strict=False)
        ]
        top = answers[0]
        return SpanAnswer(text=top.text, start=top.start, end=top.end, score=top.score, others=tuple(answers[1:]))

    # ------------------------------------------------------------ metrics

    def compute_metrics(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> Metrics:
        """Exact match and F1 as defined by SQuAD."""
        return metrics.score([_gold_texts(sample) for sample in samples], [answer.text for answer in predictions])

    def bootstrap_metrics(
        self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """The same metrics for resampled indices, computed from each question's scores."""
        return metrics.resampler([_gold_texts(sample) for sample in samples], [answer.text for answer in predictions])

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Numbers of questions with and without answer."""
        return metrics.support([_gold_texts(sample) for sample in samples])

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Always "no answer"."""
        return metrics.baselines([_gold_texts(sample) for sample in samples])

    def confusion_matrix(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """Answer or no answer, gold by predicted; None if every question has an answer."""
        if not self.settings.allow_no_answer:
            return None
        counts = np.zeros((2, 2), np.int64)
        for answer, sample in zip(predictions, samples, strict=True):
            counts[int(not len(sample.gold)), int(not answer.text)] += 1
        return ConfusionMatrix.from_matrix(("answer", "no answer"), counts)

    def mistakes(self, predictions: Sequence[SpanAnswer], samples: Sequence[Sample]) -> list[Mistake]:
        """Answers that match none of the golds, most confident first."""
        mistakes = [
            Mistake(
                location=sample.location,
                input_text=f"{sample.inputs['question']} | {sample.inputs['passage']}",
                gold=" | ".join(dict.fromkeys(_gold_texts(sample))) or "no answer",
                prediction=answer.text or "no answer",
                confidence=answer.score,
            )
            for answer, sample in zip(predictions, samples, strict=True)
            if not any(metrics.exact_and_f1(gold, answer.text)[0] for gold in _gold_texts(sample) or ("",))
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.confidence)

    def format_output(self, prediction: SpanAnswer, sample: Sample) -> dict[str, Any]:
        """{answer, score, start, end}; an empty answer for "no answer"."""
        return {"answer": prediction.text, "score": prediction.score, "start": prediction.start, "end": prediction.end}

    def format_top_outputs(self, prediction: SpanAnswer, sample: Sample, top: int) -> list[Any]:
        """The `top` best answers."""
        return [self.format_output(candidate, sample) for candidate in (prediction, *prediction.others)[:top]]

    def describe_sample(self, sample: Sample) -> str:
        """The question, its answer, and the passage."""
        answers = "unknown" if sample.gold is None else " / ".join(_gold_texts(sample)) or "no answer"
        return f"{sample.inputs['question']}  →  {answers}  |  {sample.inputs['passage']}"

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A mapping with `question` and `passage`."""
        if isinstance(value, str) or any(not isinstance(value.get(field), str) for field in TEXT_FIELDS):
            raise MeristemError('task span: give both {"question": "…", "passage": "…"}')
        return Sample(inputs={**{field: value[field] for field in TEXT_FIELDS}, "id": str(value.get("id", ""))})

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """The command with question and passage."""
        question, passage = (shlex.quote(str(sample.inputs[field])) for field in TEXT_FIELDS)
        return [f"meristem predict {run_path} --question {question} --passage {passage}"]


def _gold_texts(sample: Sample) -> list[str]:
    return [str(text) for text, _ in sample.gold]
