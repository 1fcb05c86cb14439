"""Attention between a recurrent decoder and its source: how states and annotations are compared (SPEC A2)."""

# B batch, T queries, S source positions, D width of queries, A width of annotations

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

ScoreName = Literal["dot", "general", "additive"]


class Dot(nn.Module):
    """score(s, h) = sᵀh; annotations of another width are projected first."""

    def __init__(self, width: int, annotation: int) -> None:
        super().__init__()
        self.project = nn.Identity() if annotation == width else nn.Linear(annotation, width, bias=False)

    def keys(self, annotations_BSA: Tensor) -> Tensor:
        """What queries are compared with, made once per source."""
        return self.project(annotations_BSA)  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(self, queries_BTD: Tensor, keys_BSD: Tensor) -> Tensor:
        """[B, T, S]."""
        return queries_BTD @ keys_BSD.mT


class General(Dot):
    """score(s, h) = sᵀWh: a dot product with annotations that are always projected."""

    def __init__(self, width: int, annotation: int) -> None:
        super().__init__(width, annotation)
        self.project = nn.Linear(annotation, width, bias=False)


class Additive(nn.Module):
    """score(s, h) = vᵀtanh(W[s; h]), W falling into a part for each."""

    def __init__(self, width: int, annotation: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.project = nn.Linear(annotation, width, bias=False)
        self.vector = nn.Linear(width, 1, bias=False)

    def keys(self, annotations_BSA: Tensor) -> Tensor:
        """What queries are compared with, made once per source."""
        return self.project(annotations_BSA)  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(self, queries_BTD: Tensor, keys_BSD: Tensor) -> Tensor:
        """[B, T, S]; the sums [B, T, S, D] exist once, whatever gradients need of them."""
        met = (self.query(queries_BTD)[:, :, None] + keys_BSD[:, None]).tanh_()
        return self.vector(met)[..., 0]  # type: ignore[no-any-return]  # nn.Module.__call__


SCORES: dict[ScoreName, type[Dot] | type[Additive]] = {"dot": Dot, "general": General, "additive": Additive}


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """A source as a decoder sees it."""

    values: Tensor
    """[B, S, A] the encoder's states, zero where nothing is."""
    keys: Tensor
    """[B, S, D] what the decoder's states are compared with."""
    present: Tensor | None
    """[B, S] positions that exist."""


class Look(nn.Module):
    """A weighted mean of the annotations, and the weights: the alignment."""

    def __init__(self, score: ScoreName, width: int, annotation: int) -> None:
        super().__init__()
        self.score = SCORES[score](width, annotation)

    def annotated(self, values_BSA: Tensor, present_BS: Tensor | None) -> Annotated:
        """What every step needs of a source, made once."""
        return Annotated(values=values_BSA, keys=self.score.keys(values_BSA), present=present_BS)

    def forward(self, queries_BTD: Tensor, source: Annotated) -> tuple[Tensor, Tensor]:
        """Contexts [B, T, A] and alignments [B, T, S]."""
        scores_BTS = self.score(queries_BTD, source.keys)
        if source.present is not None:
            scores_BTS = scores_BTS.masked_fill(~source.present[:, None], -torch.inf)
        weights_BTS = scores_BTS.softmax(-1)
        return weights_BTS @ source.values, weights_BTS
