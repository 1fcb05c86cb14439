"""RoBERTa (Liu et al. 2019): BERT without segments, for packed full sentences and dynamic masking."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from meristem.models.bert import Bert, BertSettings


class RobertaSettings(BertSettings):
    """RoBERTa-base unless set otherwise."""

    family: Literal["roberta"] = "roberta"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """Epsilon of the norms."""
    segments: int = Field(0, ge=0)
    """Number of segment embeddings (token types); RoBERTa has none."""


class Roberta(Bert):
    """BERT's architecture; data, tokenizer and objective differ."""

    Settings = RobertaSettings
