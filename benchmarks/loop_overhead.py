"""Overhead of the training loop: data loading, masking, metrics and logging, relative to the bare training steps.

python -m benchmarks.loop_overhead [--steps 30] [--repeats 5]

Steps are timed inside the run, so that both measurements see the same machine; evaluation and the last checkpoint
are excluded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.side_by_side import table
from meristem.api import resolve_pretrain_recipe
from meristem.training import pretraining
from meristem.training.step import Stepper

RUN = ["objective=mlm", "train.save_every=1h", "train.evaluate_every=1000000"]


@contextmanager
def timed_steps() -> Iterator[list[float]]:
    """Context that records the seconds of every training step."""
    step_durations: list[float] = []
    plain = Stepper.train_step

    def timed_train_step(*arguments: Any) -> Any:
        start = time.perf_counter()
        step_result = plain(*arguments)
        step_durations.append(time.perf_counter() - start)
        return step_result

    Stepper.train_step = timed_train_step  # type: ignore[method-assign]  # put back below
    try:
        yield step_durations
    finally:
        Stepper.train_step = plain  # type: ignore[method-assign]  # as it was


def share(steps: int, folder: Path) -> float:
    """Overhead of the run relative to its steps."""
    with timed_steps() as step_durations:
        recipe = resolve_pretrain_recipe("bert-mini-prenorm", [*RUN, f"train.steps={steps}"])
        result = pretraining.pretrain(recipe, folder, fresh=False, console=Console(quiet=True))
    step_seconds = sum(step_durations[-steps:])
    return result.used["minutes"] * 60 / step_seconds - 1


def main() -> None:
    """Repeat, and print the overhead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            shares.append(share(options.steps, Path(folder) / str(repeat)))
            print(f"{shares[-1]:+.2%}", flush=True)
    middle = statistics.median(shares)
    print(
        table(
            ["steps", "repeats", "the loop's own cost (median)", "range"],
            [[str(options.steps), str(options.repeats), f"{middle:+.2%}", f"{min(shares):+.2%} to {max(shares):+.2%}"]],
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
