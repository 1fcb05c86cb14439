"""Choice of training precision: bfloat16 where the hardware multiplies it faster, else float32.

Weights, optimizer state, norms, softmax and losses are float32 in either; in bfloat16 the weights are cast once per
forward pass, and activations stay bfloat16 between products.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Literal

import torch

from meristem.config.recipe import Recipe, ReinforceRecipe
from meristem.interfaces.backbone import Backbone

Precision = Literal["float32", "bfloat16"]
CPU_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""Features (x86, then ARM) with which a CPU multiplies bfloat16 natively; without them it is emulated, and slower."""
MIN_SPEEDUP = 1.3
"""How much faster a bfloat16 product must be: what is between the products gains less."""
MIN_HIDDEN_SIZE = 128
"""Smaller models spend their time between the products, where bfloat16 gains nothing."""
PRODUCT_ROWS, PRODUCT_REPEATS = 1024, 8


def choose_precision(recipe: Recipe, device: torch.device, backbone: Backbone) -> Precision:
    """`train.precision`, or for `auto` what is faster for this model on this device.

    A policy trains in float32: the log-probabilities of its rollouts must be those of the pass that trains on them.
    """
    requested: Precision | Literal["auto"] = recipe.train.precision
    if requested != "auto":
        return requested
    if isinstance(recipe, ReinforceRecipe):
        return "float32"
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    if device.type != "cpu" or not bfloat16_features() or not backbone.gains_from_bfloat16:
        return "float32"
    if backbone.hidden_size < MIN_HIDDEN_SIZE:
        return "float32"
    return "bfloat16" if product_speedup(backbone.hidden_size) >= MIN_SPEEDUP else "float32"


def bfloat16_features() -> list[str]:
    """Features of this CPU that multiply bfloat16 natively."""
    capabilities = torch.cpu.get_capabilities()
    return [feature for feature in CPU_FEATURES if capabilities.get(feature)]


@cache
def product_speedup(hidden_size: int) -> float:
    """How many times as fast as float32 a product of the model's size is in bfloat16 (takes a few milliseconds)."""
    return _product_seconds(hidden_size, torch.float32) / _product_seconds(hidden_size, torch.bfloat16)


def _product_seconds(hidden_size: int, dtype: torch.dtype) -> float:
    """Best time of a product [1024, hidden size] · [hidden size, 4 · hidden size]; other processes only add to it."""
    activations = torch.ones(PRODUCT_ROWS, hidden_size, dtype=dtype)
    weight = torch.ones(4 * hidden_size, hidden_size, dtype=dtype)
    durations = []
    for _ in range(PRODUCT_REPEATS):
        start = time.perf_counter()
        torch.nn.functional.linear(activations, weight)
        durations.append(time.perf_counter() - start)
    return min(durations)


def autocast_context(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bfloat16, or a null context in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()


def product_dtype(precision: Precision) -> torch.dtype:
    """Data type of matrix products."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
