"""GPT (Radford et al. 2018): a causal transformer, post-norm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from meristem.blocks.transformer.layer import NormPosition
from meristem.blocks.weight_init import OutputInit
from meristem.models.gpt2 import GPT2, GPT2Settings


class GPTSettings(GPT2Settings):
    """GPT-1 unless set otherwise."""

    family: Literal["gpt"] = "gpt"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    max_length: int = Field(512, ge=4)
    """Maximum input length in tokens."""
    norm_position: NormPosition = "post"
    """Norm before each sub-layer (pre) or after its residual (post, as in the paper)."""
    output_init: OutputInit = "normal"
    """Initialization of projections into the residual stream: normal (the paper), scaled by 1/√(2·layers), or zero."""


class GPT(GPT2):
    """GPT-2's architecture with post-norm, without a final norm, and half the length."""

    Settings = GPTSettings
