"""Beam search over a session: several texts of each row side by side, the likeliest kept."""

# R rows searched, W texts followed of each, V vocabulary

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.generation.sampling import refuse_nan
from meristem.generation.session import Session

Adjust = Callable[[Tensor, Sequence[Sequence[int]], Sequence[int]], Tensor]
"""Log-probabilities [R·W, V], the texts so far and the row of each → the same with what is unwanted made unlikely."""


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


@dataclass(kw_only=True)
class _Row:
    """One row's search: what is followed, the likeliest first, and what was found."""

    number: int
    texts: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    scores: list[float] = field(default_factory=lambda: [0.0])
    parents: list[int] = field(default_factory=list)
    """Which of the texts before each goes on from."""
    found: list[Found] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How a search goes: how many texts are followed, how far, and when one is at its end."""

    beams: int
    most: int
    """Tokens of the longest text."""
    end: int | None = None
    """The token that ends a text."""
    length_penalty: float = 1.0
    early: bool = False
    """A row is done once no text still followed would overtake if it ended now, not only once none ever can."""
    adjust: Adjust = lambda logprobs, texts, rows: logprobs
    ends: Callable[[Sequence[int], int], bool] = lambda tokens, row: False
    """Whether a text of a row has come to its end with its last token."""

    def search(self, session: Session, best: int = 1) -> list[Found]:
        """The best texts that follow a session's one row, the likeliest first."""
        return self.search_all(session, best)[0]

    def search_all(self, session: Session, best: int = 1) -> list[list[Found]]:
        """The same for every row of a session; none depends on the others."""
        rows = [_Row(number=number) for number in range(len(session.logits))]
        going, width = rows, 1
        for size in range(1, self.most + 1):
            for row, *candidates in zip(going, *self._likeliest(session.logits, going), strict=True):
                self._follow(row, list(zip(*candidates, strict=True)), size, best)
            places = [place for place, row in enumerate(going) if not row.done]
            if not places:
                break
            parents = [place * width + parent for place in places for parent in going[place].parents]
            going, width = [going[place] for place in places], self.beams
            session.keep(torch.tensor(parents, device=session.logits.device))
            last = [text[-1] for row in going for text in row.texts]
            session.push(torch.tensor(last, device=session.logits.device))
        return [sorted(row.found, key=lambda one: -one.score)[:best] for row in rows]

    def _likeliest(
        self, logits: Tensor, going: Sequence[_Row]
    ) -> tuple[list[list[int]], list[list[int]], list[list[float]]]:
        """Per row twice as many continuations as beams (parent, token, total), so that half of them may end."""
        refuse_nan(logits)
        texts, owners = zip(*((text, row.number) for row in going for text in row.texts), strict=True)
        logprobs = self.adjust(logits.float().log_softmax(-1), texts, owners)
        scores = torch.tensor([row.scores for row in going], device=logits.device)
        words = logprobs.shape[-1]
        totals = (scores[..., None] + logprobs.view(*scores.shape, words)).flatten(1)
        top = totals.topk(min(2 * self.beams, totals.shape[1]))
        return (top.indices // words).tolist(), (top.indices % words).tolist(), top.values.tolist()

    def _follow(self, row: _Row, candidates: Sequence[tuple[int, int, float]], size: int, best: int) -> None:
        """Texts that end are found; the likeliest others are followed until nothing better can come."""
        texts, scores, parents = list[tuple[int, ...]](), list[float](), list[int]()
        for parent, token, total in candidates:
            text = row.texts[parent] if token == self.end else (*row.texts[parent], token)
            if total == -torch.inf:
                break
            if token == self.end or self.ends(text, row.number):
                row.found.append(self._found(text, total, size, ended=True))
            elif len(texts) < self.beams:
                texts, scores, parents = [*texts, text], [*scores, total], [*parents, parent]
        row.found = sorted(row.found, key=lambda one: -one.score)[: max(best, self.beams)]
        row.done = not texts or size == self.most or self._settled(row.found, scores[0], size, best)
        if size == self.most:
            row.found += [
                self._found(text, total, size, ended=False) for text, total in zip(texts, scores, strict=True)
            ]
        spare = self.beams - len(texts)  # filled up with texts of no probability, so that all rows are as wide
        row.texts, row.scores = texts + texts[:1] * spare, scores + [-torch.inf] * spare
        row.parents = parents + parents[:1] * spare

    def _found(self, text: Sequence[int], total: float, size: int, *, ended: bool) -> Found:
        return Found(tokens=tuple(text), logprob=total, ended=ended, score=total / size**self.length_penalty)

    def _settled(self, found: Sequence[Found], likeliest: float, size: int, best: int) -> bool:
        """Whether no text still followed can overtake: at most it keeps its log-probability to the full length."""
        enough = max(best, self.beams)
        length = size if self.early else self.most
        return len(found) >= enough and found[enough - 1].score >= likeliest / length**self.length_penalty
