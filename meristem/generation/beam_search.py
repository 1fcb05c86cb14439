"""Beam search over a decode session, batched over rows, with a length penalty and early stopping."""

# R rows, W beams per row, V vocabulary

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.logits_processors import LogitsProcessor, TokenHistory, process_logits
from meristem.generation.sampling import check_no_nan

IsFinished = Callable[[Sequence[int], int], bool]
"""(tokens, row) → whether the last token ends the text."""


@dataclass(frozen=True, kw_only=True)
class BeamHypothesis:
    """A finished beam: one candidate text."""

    tokens: tuple[int, ...]
    """Without the end token."""
    logprob: float
    """Sum over the tokens, including the end token if there is one."""
    ended: bool
    """Whether the text ended with the end token or because `is_finished` returned True, not at `max_new_tokens`."""
    score: float
    """logprob / length ** length_penalty, by which hypotheses are ranked."""


@dataclass(kw_only=True)
class _BeamRow:
    """The search state of one row: its active beams, most probable first, and its finished hypotheses."""

    row_index: int
    prompt_ids: Sequence[int] = ()
    is_finished: IsFinished | None = None
    texts: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    scores: list[float] = field(default_factory=lambda: [0.0])
    parents: list[int] = field(default_factory=list)
    """For each beam, the index of the beam of the previous step that it extends."""
    hypotheses: list[BeamHypothesis] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """Settings of a beam search: number of beams, maximum length and stopping criteria."""

    num_beams: int
    max_new_tokens: int
    """Maximum tokens of a hypothesis."""
    end_id: int | None = None
    """The token that ends a text."""
    length_penalty: float = 1.0
    early_stopping: bool = False
    """Stop a row once no active beam would win if it ended now, instead of once none can ever win."""
    processors: Sequence[LogitsProcessor] = ()
    """Called with log-probabilities."""

    def search_all(
        self,
        session: DecodeSession,
        best: int = 1,
        prompts: Sequence[Sequence[int]] = (),
        is_finished: IsFinished | None = None,
    ) -> list[list[BeamHypothesis]]:
        """The `best` hypotheses for each row of a session; rows are independent.

        `prompts` are the tokens before each row, for the processors.
        """
        rows = [
            _BeamRow(row_index=number, prompt_ids=prompts[number] if prompts else (), is_finished=is_finished)
            for number in range(len(session.logits))
        ]
        active_rows, width = rows, 1
        for size in range(1, self.max_new_tokens + 1):
            for row, *candidates in zip(active_rows, *self._top_candidates(session.logits, active_rows), strict=True):
                self._extend_row(row, list(zip(*candidates, strict=True)), size, best)
            row_indices = [row_index for row_index, row in enumerate(active_rows) if not row.done]
            if not row_indices:
                break
            parents = [
                row_index * width + parent for row_index in row_indices for parent in active_rows[row_index].parents
            ]
            active_rows, width = [active_rows[row_index] for row_index in row_indices], self.num_beams
            session.select_rows(torch.tensor(parents, device=session.logits.device))
            last = [text[-1] for row in active_rows for text in row.texts]
            session.decode_step(torch.tensor(last, device=session.logits.device))
        return [sorted(row.hypotheses, key=lambda hypothesis: -hypothesis.score)[:best] for row in rows]

    def _top_candidates(
        self, logits: Tensor, active_rows: Sequence[_BeamRow]
    ) -> tuple[list[list[int]], list[list[int]], list[list[float]]]:
        """(parents, tokens, total log-probabilities): 2·W candidates per row, so that W remain if half of them end."""
        check_no_nan(logits)
        histories = [TokenHistory(row.prompt_ids, text) for row in active_rows for text in row.texts]
        logprobs = process_logits(logits.float().log_softmax(-1), histories, self.processors)
        scores = torch.tensor([row.scores for row in active_rows], device=logits.device)
        words = logprobs.shape[-1]
        totals = (scores[..., None] + logprobs.view(*scores.shape, words)).flatten(1)
        top = totals.topk(min(2 * self.num_beams, totals.shape[1]))
        return (top.indices // words).tolist(), (top.indices % words).tolist(), top.values.tolist()

    def _extend_row(self, row: _BeamRow, candidates: Sequence[tuple[int, int, float]], length: int, best: int) -> None:
        """Move ended candidates to the hypotheses and keep the best W others as beams."""
        texts, scores, parents = list[tuple[int, ...]](), list[float](), list[int]()
        for parent, token, total in candidates:
            text = row.texts[parent] if token == self.end_id else (*row.texts[parent], token)
            if total == -torch.inf:
                break
            if token == self.end_id or (row.is_finished is not None and row.is_finished(text, row.row_index)):
                row.hypotheses.append(self._hypothesis(text, total, length, ended=True))
            elif len(texts) < self.num_beams:
                texts, scores, parents = [*texts, text], [*scores, total], [*parents, parent]
        row.hypotheses = sorted(row.hypotheses, key=lambda hypothesis: -hypothesis.score)[: max(best, self.num_beams)]
        row.done = not texts or length == self.max_new_tokens or self._is_done(row.hypotheses, scores[0], length, best)
        if length == self.max_new_tokens:
            row.hypotheses += [
                self._hypothesis(text, total, length, ended=False) for text, total in zip(texts, scores, strict=True)
            ]
        spare = self.num_beams - len(texts)  # beams of probability 0 fill up the row, so that all rows have W beams
        row.texts, row.scores = texts + texts[:1] * spare, scores + [-torch.inf] * spare
        row.parents = parents + parents[:1] * spare

    def _hypothesis(self, text: Sequence[int], total: float, length: int, *, ended: bool) -> BeamHypothesis:
        return BeamHypothesis(tokens=tuple(text), logprob=total, ended=ended, score=total / length**self.length_penalty)

    def _is_done(
        self, hypotheses: Sequence[BeamHypothesis], best_logprob: float, current_length: int, best: int
    ) -> bool:
        """Whether no active beam can win: at best it keeps its log-probability up to the maximum length."""
        enough = max(best, self.num_beams)
        length = current_length if self.early_stopping else self.max_new_tokens
        return len(hypotheses) >= enough and hypotheses[enough - 1].score >= best_logprob / length**self.length_penalty
