"""Beam search over a session: several texts side by side, the likeliest kept."""

# N texts followed, V vocabulary

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.generation.session import Session

Adjust = Callable[[Tensor, Sequence[Sequence[int]]], Tensor]
"""Log-probabilities [N, V] and the N texts so far → log-probabilities with what is unwanted made unlikely."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A text that beam search found."""

    tokens: tuple[int, ...]
    """Without the end of the document."""
    logprob: float
    """Of the tokens, the end of the document included where the text has one."""
    ended: bool
    """Whether the text ended by itself: by its last token, or because `ends` said so."""
    score: float
    """logprob / length ** penalty: what texts are ranked by."""


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How a search goes: how many texts are followed, how far, and when one is at its end."""

    beams: int
    most: int
    """Tokens of the longest text."""
    end: int | None = None
    """The token that ends a text."""
    length_penalty: float = 1.0
    adjust: Adjust = lambda logprobs, texts: logprobs
    ends: Callable[[Sequence[int]], bool] = lambda tokens: False
    """Whether a text has come to its end with its last token."""

    def search(self, session: Session, best: int = 1) -> list[Found]:
        """The best texts that follow a session's one row, the likeliest first."""
        texts, scores = [()], torch.zeros(1)  # type: list[tuple[int, ...]], Tensor
        found: list[Found] = []
        for size in range(1, self.most + 1):
            logprobs = self.adjust(session.logits.float().log_softmax(-1), texts)
            parents, tokens, totals = self._likeliest(scores[:, None] + logprobs.cpu())
            going: list[int] = []
            for number, (parent, token, total) in enumerate(zip(parents, tokens, totals.tolist(), strict=True)):
                text = texts[parent] if token == self.end else (*texts[parent], token)
                if token == self.end or self.ends(text):
                    found.append(self._found(text, total, size, ended=True))
                elif len(going) < self.beams:
                    going.append(number)
            texts = [(*texts[parents[n]], tokens[n]) for n in going]
            scores = totals[going]
            found = sorted(found, key=lambda one: -one.score)[: max(best, self.beams)]
            if not going or size == self.most or self._settled(found, float(scores[0]), best):
                break
            session.keep(torch.tensor([parents[n] for n in going], device=session.logits.device))
            session.push(torch.tensor([tokens[n] for n in going], device=session.logits.device))
        if texts and len(texts[0]) == self.most:
            found += [self._found(text, total, self.most, ended=False)
                      for text, total in zip(texts, scores.tolist(), strict=True)]
        return sorted(found, key=lambda one: -one.score)[:best]

    def _likeliest(self, totals_NV: Tensor) -> tuple[list[int], list[int], Tensor]:
        """Twice as many continuations as beams, so that as many are left if half of them end."""
        words = totals_NV.shape[1]
        possible = int((totals_NV > -torch.inf).sum())
        top = totals_NV.flatten().topk(min(2 * self.beams, possible))
        return (top.indices // words).tolist(), (top.indices % words).tolist(), top.values

    def _found(self, text: Sequence[int], total: float, size: int, *, ended: bool) -> Found:
        return Found(tokens=tuple(text), logprob=total, ended=ended, score=total / size**self.length_penalty)

    def _settled(self, found: Sequence[Found], likeliest: float, best: int) -> bool:
        """Whether no text still followed can overtake: at most it keeps its log-probability to the full length."""
        enough = max(best, self.beams)
        return len(found) >= enough and found[enough - 1].score >= likeliest / self.most**self.length_penalty
