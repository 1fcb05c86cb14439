"""ELECTRA (Clark et al. 2020): a BERT encoder as discriminator, with smaller embeddings shared with its generator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from meristem.blocks.heads.task_heads import PoolerName
from meristem.models.bert import Bert, BertSettings


class ElectraSettings(BertSettings):
    """ELECTRA-small unless set otherwise."""

    family: Literal["electra"] = "electra"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    hidden_size: int = Field(256, ge=8)
    """Hidden size (d_model)."""
    heads: int = Field(4, ge=1)
    """Number of attention heads; must divide the hidden size."""
    embedding_size: int | None = Field(128, ge=8)
    """Embedding size, projected to the hidden size where it differs; the hidden size unless set."""
    pooler_activation: PoolerName = "gelu"
    """Activation of the pooler in sequence-level heads: tanh, gelu (ELECTRA) or relu (DistilBERT)."""


class Electra(Bert):
    """BERT's encoder as the discriminator; the generator is a head (`generator`) that the RTD objective declares."""

    Settings = ElectraSettings
