"""Head, loss and decoder of extractive question answering: start and end logits, candidates ranked over windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.precision import at_least_float32
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import TaskHead
from meristem.tasks.components.char_spans import token_span_to_chars
from meristem.tasks.components.state_reader import EncoderStateReader

NEG_INF = float("-inf")
CANDIDATES_PER_ANSWER = 3
"""Token spans considered for each answer kept: several may extend to the same words."""


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


@dataclass(frozen=True, kw_only=True)
class SpanSearch:
    """How the best spans are searched."""

    max_answer_length: int
    n_best_size: int
    allow_no_answer: bool
    no_answer_bias: float


class SpanHead(TaskHead):
    """p(first token) · p(last token) over the passage, and over the summary position for "no answer"."""

    def __init__(self, term: str, states: EncoderStateReader, search: SpanSearch) -> None:
        self.term, self.states, self.search = term, states, search
        self.heads, self.loss_weights = {term: states.head("tags", 2)}, {term: 1.0}

    def logits(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, Tensor]:
        """Start and end logits, [B, T] each; −∞ outside the passage and the "no answer" position."""
        positions, shape = batch.targets["read"]["at"], batch.inputs["tokens"].shape
        position_logits = at_least_float32(model.heads[self.term](self.states.select(model, hidden, positions)))
        grid = position_logits.new_full((shape.numel(), 2), NEG_INF)
        grid = grid.index_copy(0, positions, position_logits).view(*shape, 2)
        return grid[..., 0], grid[..., 1]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Mean of the cross-entropies of start and end position, for each window."""
        begin_BT, end_BT = self.logits(model, hidden, batch)
        target = batch.targets.get(self.term)
        if target is None:
            return Outcome(loss_sums={self.term: hidden.last_hidden_state.sum() * 0.0})
        rows = target["at"] // begin_BT.shape[1]
        begin_loss, end_loss = (
            F.cross_entropy(logits[rows], target[side], reduction="sum")
            for logits, side in ((begin_BT, "first"), (end_BT, "last"))
        )
        return Outcome(loss_sums={self.term: (begin_loss + end_loss) / 2})

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[SpanCandidate]:
        """The best spans of each window, at most `answer_length` tokens long."""
        begin_BT, end_BT = self.logits(model, hidden, batch)
        no_answer_positions = batch.targets["nowhere"]["at"]
        no_answer_B = (begin_BT.flatten()[no_answer_positions] + end_BT.flatten()[no_answer_positions]).tolist()
        begin, end = (
            scores.flatten().index_fill(0, no_answer_positions, NEG_INF).view_as(scores)
            for scores in (begin_BT, end_BT)
        )
        max_answer = min(self.search.max_answer_length, begin.shape[1])
        ends_BTL = F.pad(end, (0, max_answer - 1), value=NEG_INF).unfold(1, max_answer, 1)
        pairs = (begin[..., None] + ends_BTL).flatten(1)
        top = pairs.topk(min(self.search.n_best_size * CANDIDATES_PER_ANSWER, pairs.shape[1]), 1)
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

    def merge(
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
        if self.search.allow_no_answer or not score_by_span:  # the window with the lowest "no answer" score decides
            no_answer_score = min((candidate.no_answer_score for _, candidate in candidates), default=0.0)
            score_by_span[0, 0] = no_answer_score + self.search.no_answer_bias
        ranked_spans = sorted(score_by_span, key=lambda char_span: (-score_by_span[char_span], char_span))
        probs = (
            torch.tensor([score_by_span[char_span] for char_span in ranked_spans], dtype=torch.float64)
            .softmax(0)
            .tolist()
        )
        answers = [
            SpanAnswer(text=passage[start:end], start=start, end=end, score=prob)
            for (start, end), prob in zip(ranked_spans[: self.search.n_best_size], probs, strict=False)
        ]
        top = answers[0]
        return SpanAnswer(text=top.text, start=top.start, end=top.end, score=top.score, others=tuple(answers[1:]))
