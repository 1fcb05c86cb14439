"""GPT (Radford et al. 2018): a causal decoder, norm after each part."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from meristem.blocks.initial import OutputInitial
from meristem.blocks.layer import NormPlace
from meristem.models.gpt2 import GPT2, GPT2Settings


class GPTSettings(GPT2Settings):
    """GPT-1 unless set otherwise."""

    family: Literal["gpt"] = "gpt"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    length: int = Field(512, ge=4)
    """The longest input, in tokens."""
    norm_place: NormPlace = "post"
    """Norm before each part (pre) or after its residual (post, as in the paper)."""
    output_initial: OutputInitial = "normal"
    """Projections into the residual stream: like the rest (as in the paper), scaled by 1/√(2·layers), or zero."""


class GPT(GPT2):
    """GPT-2's body as it was a year earlier: post-norm, without a norm at the end, half the length."""

    Settings = GPTSettings
