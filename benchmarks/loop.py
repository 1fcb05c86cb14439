"""The loop's own cost: what data, corruption, metrics and the journal add to the bare steps of the same run.

python -m benchmarks.loop [--steps 30] [--repeats 5]

Each step's own time is taken inside the run, so that both sides see the same machine; neither evaluation nor the
last save counts.
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
from meristem.api import recipe_for
from meristem.training import pretraining
from meristem.training.step import Stepper

RUN = ["objective=mlm", "train.save_every=1h", "train.evaluate_every=1000000"]


@contextmanager
def timed_steps() -> Iterator[list[float]]:
    """The seconds of every step that is taken inside."""
    took: list[float] = []
    plain = Stepper.take

    def take(*arguments: Any) -> Any:
        start = time.perf_counter()
        taken = plain(*arguments)
        took.append(time.perf_counter() - start)
        return taken

    Stepper.take = take  # type: ignore[method-assign]  # put back below
    try:
        yield took
    finally:
        Stepper.take = plain  # type: ignore[method-assign]  # as it was


def share(steps: int, folder: Path) -> float:
    """How much longer the run took than its steps."""
    with timed_steps() as took:
        recipe = recipe_for("bert-mini-prenorm", [*RUN, f"train.steps={steps}"])
        ended = pretraining.pretrain(recipe, folder, fresh=False, console=Console(quiet=True))
    bare = sum(took[-steps:])
    return ended.used["minutes"] * 60 / bare - 1


def main() -> None:
    """Repeat, and print the share that is the loop's."""
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
