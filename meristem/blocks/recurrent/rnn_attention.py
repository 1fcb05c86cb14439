"""Attention of RNN decoders over the source: dot, general (Luong et al. 2015), additive (Bahdanau et al. 2014)."""

# B batch, T queries, S source positions, D query size, A annotation size (encoder states)

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

ScoreName = Literal["dot", "general", "additive"]


class DotScore(nn.Module):
    """score(s, h) = sᵀh; annotations of another size are projected first."""

    def __init__(self, hidden_size: int, annotation: int) -> None:
        super().__init__()
        self.project = nn.Identity() if annotation == hidden_size else nn.Linear(annotation, hidden_size, bias=False)

    def project_keys(self, annotations_BSA: Tensor) -> Tensor:
        """Keys [B, S, D], computed once per source."""
        return self.project(annotations_BSA)  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(self, queries_BTD: Tensor, keys_BSD: Tensor) -> Tensor:
        """Scores [B, T, S]."""
        return queries_BTD @ keys_BSD.mT


class GeneralScore(DotScore):
    """score(s, h) = sᵀWh: a dot product with projected annotations."""

    def __init__(self, hidden_size: int, annotation: int) -> None:
        super().__init__(hidden_size, annotation)
        self.project = nn.Linear(annotation, hidden_size, bias=False)


class AdditiveScore(nn.Module):
    """score(s, h) = vᵀtanh(W[s; h]), with W split into one matrix for s and one for h."""

    def __init__(self, hidden_size: int, annotation: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.project = nn.Linear(annotation, hidden_size, bias=False)
        self.vector = nn.Linear(hidden_size, 1, bias=False)

    def project_keys(self, annotations_BSA: Tensor) -> Tensor:
        """Keys [B, S, D], computed once per source."""
        return self.project(annotations_BSA)  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(self, queries_BTD: Tensor, keys_BSD: Tensor) -> Tensor:
        """Scores [B, T, S]; tanh is in place, so that [B, T, S, D] is stored only once for the backward pass."""
        combined = (self.query(queries_BTD)[:, :, None] + keys_BSD[:, None]).tanh_()
        return self.vector(combined)[..., 0]  # type: ignore[no-any-return]  # nn.Module.__call__


SCORE_CLASSES: dict[ScoreName, type[DotScore] | type[AdditiveScore]] = {
    "dot": DotScore,
    "general": GeneralScore,
    "additive": AdditiveScore,
}


@dataclass(frozen=True, kw_only=True)
class EncodedSource:
    """Encoder output for the decoder's attention."""

    values: Tensor
    """[B, S, A] encoder states, zero at padding."""
    keys: Tensor
    """[B, S, D] projected keys."""
    present: Tensor | None
    """[B, S] padding mask: true at positions that are not padding."""


class SourceAttention(nn.Module):
    """Attention over the source: context vectors and attention weights (the alignment)."""

    def __init__(self, score: ScoreName, hidden_size: int, annotation: int) -> None:
        super().__init__()
        self.score = SCORE_CLASSES[score](hidden_size, annotation)

    def encode_source(self, values_BSA: Tensor, present_BS: Tensor | None) -> EncodedSource:
        """Values, keys and mask of a source, computed once for all steps."""
        return EncodedSource(values=values_BSA, keys=self.score.project_keys(values_BSA), present=present_BS)

    def forward(self, queries_BTD: Tensor, source: EncodedSource) -> tuple[Tensor, Tensor]:
        """Context vectors [B, T, A] and attention weights [B, T, S]."""
        scores_BTS = self.score(queries_BTD, source.keys)
        if source.present is not None:
            scores_BTS = scores_BTS.masked_fill(~source.present[:, None], -torch.inf)
        weights_BTS = scores_BTS.softmax(-1)
        return weights_BTS @ source.values, weights_BTS
