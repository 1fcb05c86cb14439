"""A linear-chain conditional random field: scores of single words, and of which class follows which (Lafferty 2001)."""

# B rows, W words, C classes

from __future__ import annotations

import torch
from torch import Tensor, nn

NEVER = float("-inf")


class CRF(nn.Module):
    """score(path) = start + Σ scores + Σ transitions + end; all sums over paths are exact.

    Rows hold their words in front; what `present` says is missing comes behind them.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(classes, classes))
        """From the row's class to the column's."""
        self.start = nn.Parameter(torch.zeros(classes))
        self.end = nn.Parameter(torch.zeros(classes))

    def forward(self, scores_BWC: Tensor, present_BW: Tensor) -> Tensor:
        """log Σ exp(score) over all paths [B]; a class whose score is −∞ is on no path; no words, one empty path."""
        total_B = (self._forward(scores_BWC, present_BW, self.transitions, self.start)[-1] + self.end).logsumexp(1)
        return torch.where(present_BW[:, 0], total_B, 0.0)

    def best(self, scores_BWC: Tensor, present_BW: Tensor, legal: Tensor | None = None) -> Tensor:
        """The path of the highest score [B, W] (Viterbi); behind a row's words stands its last class.

        `legal` [C + 1, C] forbids: which class may follow which, and in its last row which may come first.
        """
        transitions, start = self._legal(legal)
        best_BC, came = start + scores_BWC[:, 0], []
        stay_BC = torch.arange(len(start), device=start.device).expand_as(best_BC)
        for score_BC, there_B in zip(scores_BWC.unbind(1)[1:], present_BW.unbind(1)[1:], strict=True):
            found_BC, from_BC = (best_BC[:, :, None] + transitions).max(1)
            there_B1 = there_B[:, None]
            best_BC = torch.where(there_B1, found_BC + score_BC, best_BC)
            came.append(torch.where(there_B1, from_BC, stay_BC))
        path = [(best_BC + self.end).argmax(1)]
        for from_BC in reversed(came):
            path.append(from_BC.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)

    def marginals(self, scores_BWC: Tensor, present_BW: Tensor, legal: Tensor | None = None) -> Tensor:
        """p(class of a word) over all paths, or over the legal ones [B, W, C] (forward and backward)."""
        transitions, start = self._legal(legal)
        before = self._forward(scores_BWC, present_BW, transitions, start)
        behind = [self.end.expand_as(before[0])]
        for score_BC, there_B in zip(scores_BWC.unbind(1)[:0:-1], present_BW.unbind(1)[:0:-1], strict=True):
            going_BC = (transitions + (score_BC + behind[-1])[:, None]).logsumexp(2)
            behind.append(torch.where(there_B[:, None], going_BC, behind[-1]))
        return (torch.stack(before, 1) + torch.stack(behind[::-1], 1)).softmax(2)

    def _forward(self, scores_BWC: Tensor, present_BW: Tensor, transitions: Tensor, start: Tensor) -> list[Tensor]:
        """Per word log Σ over paths that end in each class there [B, C]; it stays as it is behind the last word."""
        sums = [start + scores_BWC[:, 0]]
        for score_BC, there_B in zip(scores_BWC.unbind(1)[1:], present_BW.unbind(1)[1:], strict=True):
            reached_BC = (sums[-1][:, :, None] + transitions).logsumexp(1) + score_BC
            sums.append(torch.where(there_B[:, None], reached_BC, sums[-1]))
        return sums

    def _legal(self, legal: Tensor | None) -> tuple[Tensor, Tensor]:
        if legal is None:
            return self.transitions, self.start
        return self.transitions.masked_fill(~legal[:-1], NEVER), self.start.masked_fill(~legal[-1], NEVER)
