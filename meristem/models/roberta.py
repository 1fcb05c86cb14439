"""RoBERTa (Liu et al. 2019): BERT without segments, for full sentences packed and masked anew each epoch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from meristem.models.bert import Bert, BertSettings


class RobertaSettings(BertSettings):
    """RoBERTa-base unless set otherwise."""

    family: Literal["roberta"] = "roberta"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """What keeps a norm from dividing by zero."""
    segments: int = Field(0, ge=0)
    """RoBERTa tells no segments apart."""


class Roberta(Bert):
    """BERT's body; what differs is its text, its tokenizer and its objective."""

    Settings = RobertaSettings
