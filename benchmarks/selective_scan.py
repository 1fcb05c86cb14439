"""The selective scan compared with the plain recurrence under autograd: processor time of forward and backward passes.

python -m benchmarks.selective_scan [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

from benchmarks.side_by_side import table
from meristem.blocks.recurrent.selective_scan import selective_scan

TOKENS, CHANNELS, STATE = 256, 512, 16
"""A layer of mamba-mini."""


def plain_recurrence(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step per token; autograd keeps the states and decays of all tokens."""
    outputs = []
    for t in range(x.shape[1]):
        state = torch.exp(dt[:, t, None] * a) * state + b[:, t, :, None] * (dt[:, t] * x[:, t])[:, None]
        outputs.append((c[:, t, None] @ state)[:, 0])
    return torch.stack(outputs, 1), state


def measure(rows: int, repeats: int) -> list[str]:
    """A line of the table: median milliseconds of both, and their ratio, alternated on one thread."""
    torch.manual_seed(0)
    shapes = (rows, TOKENS, CHANNELS), (rows, TOKENS, CHANNELS), (STATE, CHANNELS), *[(rows, TOKENS, STATE)] * 2
    tensors = [torch.rand(shape).mul_(0.1) for shape in shapes]
    tensors[2].neg_()
    state = torch.zeros(rows, STATE, CHANNELS)
    for tensor in tensors:
        tensor.requires_grad_()
    seconds: dict[str, list[float]] = {"plain": [], "chunked": []}
    for _ in range(repeats):
        for name, scan in (("plain", plain_recurrence), ("chunked", selective_scan)):
            start = time.process_time()
            torch.autograd.grad(scan(*tensors, state)[0].sum(), tensors)
            seconds[name].append(time.process_time() - start)
    plain, chunked = (statistics.median(seconds[name]) * 1000 for name in ("plain", "chunked"))
    return [str(rows), f"{plain:.0f} ms", f"{chunked:.0f} ms", f"{plain / chunked:.1f}×"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    rows = [measure(rows, repeats) for rows in (1, 4, 16)]
    print(table([f"rows of {TOKENS} tokens", "plain recurrence", "chunked scan", "speed-up"], rows))


if __name__ == "__main__":
    main()
