"""ELECTRA (Clark et al. 2020): a BERT that judges tokens, over narrower embeddings which its generator shares."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from meristem.blocks.heads import PoolerName
from meristem.models.bert import Bert, BertSettings


class ElectraSettings(BertSettings):
    """ELECTRA-small unless set otherwise."""

    family: Literal["electra"] = "electra"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    width: int = Field(256, ge=8)
    """Channels of a hidden state (d_model)."""
    heads: int = Field(4, ge=1)
    """Attention heads; they divide the width."""
    embedding: int | None = Field(128, ge=8)
    """Width of the embeddings where it is not the model's; they are then projected to it."""
    pooler: PoolerName = "gelu"
    """What follows the dense layer of a head that reads a whole text: tanh, gelu (ELECTRA) or relu (DistilBERT)."""


class Electra(Bert):
    """BERT's body as the discriminator; the objective asks it for its generator, a smaller self."""

    Settings = ElectraSettings
