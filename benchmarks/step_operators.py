"""Processor time of a bfloat16 training step by operator, on one thread.

python -m benchmarks.step_operators [--step clm-8192|mlm-30522|xlnet|bart|t5|electra|rnn] [--steps 3] [--rows 25]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import family_steps, steps
from benchmarks.side_by_side import table


def build_step(name: str) -> Callable[[], object]:
    """A step of `benchmarks.family_steps` with a vocabulary of 8,192, or a mini step of `benchmarks.steps`."""
    if name in family_steps.CASES:
        return family_steps.our_step(name, 8192, "bfloat16")
    kind, _, vocabulary = name.partition("-")
    return steps.our_step(steps.Case(kind=kind, size="mini", vocabulary=int(vocabulary)), "bfloat16")[0]


def main() -> None:
    """Profile after two steps that are not counted, and print the operators that take most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", default="clm-8192")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rows", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    step = build_step(options.step)
    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(options.steps):
            step()
    averages = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in averages)
    rows = [
        [
            event.key,
            f"{event.count / options.steps:.0f}",
            f"{event.self_cpu_time_total / options.steps / 1000:.1f}",
            f"{event.self_cpu_time_total / total:.1%}",
        ]
        for event in averages[: options.rows]
    ]
    print(f"{options.step}: {total / options.steps / 1000:.0f} ms per step")
    print(table(["operator", "calls", "ms per step", "share"], rows))


if __name__ == "__main__":
    main()
