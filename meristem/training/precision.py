"""Choice of training precision: bfloat16 where the hardware multiplies it faster, else float32.

Weights, optimizer state, norms, softmax and losses are float32 in either; in bfloat16 the weights are cast once per
forward pass, and activations stay bfloat16 between products.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from meristem.blocks.bfloat16_speed import bfloat16_features, product_speedup
from meristem.config.recipe import Recipe, ReinforceRecipe
from meristem.interfaces.backbone import Backbone

Precision = Literal["float32", "bfloat16"]
MIN_SPEEDUP = 1.3
"""How much faster a bfloat16 product must be: what is between the products gains less."""
MIN_HIDDEN_SIZE = 128
"""Smaller models spend their time between the products, where bfloat16 gains nothing."""


def choose_precision(recipe: Recipe, device: torch.device, backbone: Backbone) -> Precision:
    """`train.precision`, or for `auto` what is faster for this model on this device.

    A policy trains in float32: the log-probabilities of its rollouts must be those of the pass that trains on them.
    """
    requested: Precision | Literal["auto"] = recipe.train.precision
    if requested != "auto":
        return requested
    if isinstance(recipe, ReinforceRecipe) or recipe.train.privacy is not None:  # norms are clipped as they are added
        return "float32"
    return fastest_precision(device, backbone.hidden_size if backbone.gains_from_bfloat16 else 0)


def fastest_precision(device: torch.device, hidden_size: int) -> Precision:
    """What is faster on this device for a model of this hidden size, 0 if it gains nothing from bfloat16."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    if device.type != "cpu" or not bfloat16_features() or hidden_size < MIN_HIDDEN_SIZE:
        return "float32"
    return "bfloat16" if product_speedup(hidden_size) >= MIN_SPEEDUP else "float32"


def autocast_context(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bfloat16, or a null context in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()


def product_dtype(precision: Precision) -> torch.dtype:
    """Data type of matrix products."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
