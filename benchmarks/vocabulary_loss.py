"""Our vocabulary loss beside torch's: F.linear_cross_entropy, and F.cross_entropy of logits (the usual way).

    python -m benchmarks.vocabulary_loss [--repeats 7] [--vocabulary 8192] [--dtype bfloat16] [--processor-time]

Forward and backward of 2,048 predictions from hidden size 256; torch's with and without chunks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.side_by_side import alternate, fastest, ratio, table
from meristem.blocks.heads.vocabulary import VocabularyHead

PREDICTIONS, HIDDEN_SIZE = 2048, 256
TORCH_OPTIONS = {
    "reference": None,
    "chunked": nn.LinearCrossEntropyOptions(),
    "chunked, balanced": nn.LinearCrossEntropyOptions(acc_policy="balanced"),
}
HEADER = ["dtype", "vocabulary", "ours ms", "cross_entropy ms", "linear_cross_entropy ms", "which of torch",
          "ours against torch's best", "off the usual loss, ours", "torch's best"]  # fmt: skip


def inputs(vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, nn.Embedding, Tensor]:
    """Hidden states, the embedding whose weight is the output layer, and targets."""
    torch.manual_seed(0)
    states = torch.randn(PREDICTIONS, HIDDEN_SIZE).to(dtype).requires_grad_()
    embedding = nn.Embedding(vocabulary, HIDDEN_SIZE)
    nn.init.normal_(embedding.weight, std=0.05)
    return states, embedding, torch.randint(vocabulary, (PREDICTIONS,))


def our_loss(vocabulary: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    """The mean loss of our vocabulary head, with gradients; the weight stays float32."""
    states, embedding, targets = inputs(vocabulary, dtype)
    head = VocabularyHead(embedding)
    return _with_backward(lambda: head.compute_loss(states, targets).total / PREDICTIONS, states, embedding.weight)


def usual_loss(vocabulary: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Logits of all predictions, then F.cross_entropy in float32."""
    states, embedding, targets = inputs(vocabulary, dtype)
    return _with_backward(
        lambda: F.cross_entropy(F.linear(states, embedding.weight.to(dtype)).float(), targets),
        states,
        embedding.weight,
    )


def torch_loss(vocabulary: int, dtype: torch.dtype, name: str) -> Callable[[], Tensor]:
    """F.linear_cross_entropy, which in chunks does not hold all logits."""
    states, embedding, targets = inputs(vocabulary, dtype)
    options = TORCH_OPTIONS[name]
    return _with_backward(
        lambda: F.linear_cross_entropy(states, embedding.weight.to(dtype), targets, options=options),
        states,
        embedding.weight,
    )


def _with_backward(loss: Callable[[], Tensor], *parameters: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        total = loss()
        total.backward()
        return total.detach()

    return run


def measure(vocabulary: int, dtype: torch.dtype, repeats: int, clock: Callable[[], float]) -> list[str]:
    """One row of the table."""
    variants = {name: torch_loss(vocabulary, dtype, name) for name in TORCH_OPTIONS}
    sides = {"ours": our_loss(vocabulary, dtype), "usual": usual_loss(vocabulary, dtype), **variants}
    timings = alternate(sides, repeats=repeats, warmup=2, clock=clock)
    best = fastest(timings, list(variants))
    speedup, low, high = ratio(timings, "ours", fastest(timings, [best, "usual"]))
    usual = float(sides["usual"]())
    differences = [f"{abs(float(sides[name]()) - usual):.1e}" for name in ("ours", best)]
    milliseconds = [f"{timings[name].median * 1000:.1f}" for name in ("ours", "usual", best)]
    return [str(dtype).removeprefix("torch."), f"{vocabulary:,}", *milliseconds, best,
            f"{speedup:.2f}× ({low:.2f}–{high:.2f})", *differences]  # fmt: skip


def main() -> None:
    """Every case, printed as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--vocabulary", type=int, action="append", help="8192 and 30522 unless given")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="both unless given")
    parser.add_argument("--processor-time", action="store_true", help="for one thread on a machine with other work")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        if options.dtype not in (None, str(dtype).removeprefix("torch.")):
            continue
        for vocabulary in options.vocabulary or (8_192, 30_522):
            rows.append(measure(vocabulary, dtype, options.repeats, clock))
            print(rows[-1], flush=True)
    print(table(HEADER, rows))


if __name__ == "__main__":
    main()
