"""Whether a CPU multiplies bfloat16 faster than float32: its features, and a short timing of both products."""

from __future__ import annotations

import time
from functools import cache

import torch

CPU_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""Features (x86, then ARM) with which a CPU multiplies bfloat16 natively; without them it is emulated, and slower."""
PRODUCT_ROWS, PRODUCT_REPEATS = 1024, 8


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
