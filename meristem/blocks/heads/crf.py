"""Linear-chain conditional random field (CRF, Lafferty et al. 2001): log-partition, Viterbi decoding, marginals."""

# B batch, W words, C classes

from __future__ import annotations

import torch
from torch import Tensor, nn

NEG_INF = float("-inf")


class CRF(nn.Module):
    """score(path) = start + Σ scores + Σ transitions + end; sums over paths are exact. Rows are padded on the right."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_classes, num_classes))
        """[from class, to class]"""
        self.start = nn.Parameter(torch.zeros(num_classes))
        self.end = nn.Parameter(torch.zeros(num_classes))

    def forward(self, scores_BWC: Tensor, present_BW: Tensor) -> Tensor:
        """Log-partition log Σ exp(score) over all paths [B]; a score of −∞ excludes a class; 0 for an empty row."""
        final_BC = self._forward_scores(scores_BWC, present_BW, self.transitions, self.start)[-1] + self.end
        return torch.where(present_BW[:, 0], final_BC.logsumexp(1), 0.0)

    def viterbi_decode(self, scores_BWC: Tensor, present_BW: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The path with the highest score [B, W] (Viterbi); padding repeats the row's last class.

        `allowed` [C + 1, C]: whether class j may follow class i, and in the last row whether it may come first.
        """
        transitions, start = self._mask_transitions(allowed)
        best_BC, backpointers = start + scores_BWC[:, 0], []
        stay_BC = torch.arange(len(start), device=start.device).expand_as(best_BC)
        for score_BC, present_B in zip(scores_BWC.unbind(1)[1:], present_BW.unbind(1)[1:], strict=True):
            max_score_BC, from_BC = (best_BC[:, :, None] + transitions).max(1)
            present_B1 = present_B[:, None]
            best_BC = torch.where(present_B1, max_score_BC + score_BC, best_BC)
            backpointers.append(torch.where(present_B1, from_BC, stay_BC))
        path = [(best_BC + self.end).argmax(1)]
        for from_BC in reversed(backpointers):
            path.append(from_BC.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)

    def marginals(self, scores_BWC: Tensor, present_BW: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Marginal p(class) of each word [B, W, C] over all or over the allowed paths (forward-backward)."""
        transitions, start = self._mask_transitions(allowed)
        forward_scores = self._forward_scores(scores_BWC, present_BW, transitions, start)
        backward_scores = [self.end.expand_as(forward_scores[0])]
        for score_BC, present_B in zip(scores_BWC.unbind(1)[:0:-1], present_BW.unbind(1)[:0:-1], strict=True):
            backward_BC = (transitions + (score_BC + backward_scores[-1])[:, None]).logsumexp(2)
            backward_scores.append(torch.where(present_B[:, None], backward_BC, backward_scores[-1]))
        return (torch.stack(forward_scores, 1) + torch.stack(backward_scores[::-1], 1)).softmax(2)

    def _forward_scores(
        self, scores_BWC: Tensor, present_BW: Tensor, transitions: Tensor, start: Tensor
    ) -> list[Tensor]:
        """Per word log Σ exp(score) of the paths that end in each class there [B, C]; unchanged on padding."""
        sums = [start + scores_BWC[:, 0]]
        for score_BC, present_B in zip(scores_BWC.unbind(1)[1:], present_BW.unbind(1)[1:], strict=True):
            reached_BC = (sums[-1][:, :, None] + transitions).logsumexp(1) + score_BC
            sums.append(torch.where(present_B[:, None], reached_BC, sums[-1]))
        return sums

    def _mask_transitions(self, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
        if allowed is None:
            return self.transitions, self.start
        return self.transitions.masked_fill(~allowed[:-1], NEG_INF), self.start.masked_fill(~allowed[-1], NEG_INF)
