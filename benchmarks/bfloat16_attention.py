"""Attention in bfloat16 on this CPU: materialized weights against torch's scaled_dot_product_attention.

python -m benchmarks.bfloat16_attention [--repeats 7]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.side_by_side import alternate, ratio, table
from meristem.blocks.attention.materialized_attention import causal_mask, materialized_attention

HEADS, HEAD_DIM, TOKENS = 4, 64, 4096


def attention_pass(length: int, dtype: torch.dtype, attend: Callable[..., Tensor]) -> Callable[[], None]:
    """A forward and backward pass over 4,096 tokens in rows of `length`, from fused queries, keys and values."""
    batch_size = TOKENS // length
    projected = torch.randn(batch_size, length, 3 * HEADS * HEAD_DIM, dtype=dtype, requires_grad=True)
    grad = torch.randn(batch_size, HEADS, length, HEAD_DIM, dtype=dtype)

    def run() -> None:
        heads = projected.view(batch_size, length, 3 * HEADS, HEAD_DIM).transpose(1, 2)
        attend(*heads.split(HEADS, dim=1)).backward(grad)
        projected.grad = None

    return run


def materialized(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention with materialized weights."""
    return materialized_attention(q, k, v, causal_mask(q), HEAD_DIM**-0.5, 0.0)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of torch."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def main() -> None:
    """Milliseconds per pass and the ratio, for rows of 128 to 1,024 tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    rows = []
    for length in (128, 256, 512, 1024):
        sides = {
            "materialized": attention_pass(length, torch.bfloat16, materialized),
            "fused": attention_pass(length, torch.bfloat16, fused),
            "fused float32": attention_pass(length, torch.float32, fused),
        }
        timings = alternate(sides, repeats=options.repeats, warmup=2)
        speedup, low, high = ratio(timings, "materialized", "fused")
        milliseconds = (f"{timings[name].median * 1e3:.1f}" for name in sides)
        rows.append([str(length), *milliseconds, f"{speedup:.2f}× ({low:.2f}–{high:.2f})"])
    print(table(["tokens", "materialized, ms", "SDPA, ms", "SDPA float32, ms", "ratio (quartiles)"], rows))


if __name__ == "__main__":
    main()
