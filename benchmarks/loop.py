"""The loop's own cost: the same steps through the whole loop and bare, in turns.

python -m benchmarks.loop [--steps 30] [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.side_by_side import table
from meristem.api import recipe_for
from meristem.learning.assemble import feeds_of, learner_of
from meristem.training import pretraining
from meristem.training.material import Material, gather
from meristem.training.optimizers import optimizers
from meristem.training.step import Stepper


def bare(material: Material, steps: int) -> float:
    """Steps on batches made beforehand, and nothing else."""
    resolved = recipe_for("bert-mini", ["objective=mlm", f"train.steps={steps}"])
    learner = learner_of(resolved, material.tokenizer).train()
    feed = feeds_of(resolved, learner.objectives, material.tokenizer, material.stores, split="train", seed=0)["main"]
    batches = [pretraining.step_batches(feed, number) for number in range(steps)]
    stepper = Stepper(
        learner=learner,
        optimizers=optimizers(learner.model, resolved.train),
        settings=resolved.train,
        device=torch.device("cpu"),
    )
    start = time.perf_counter()
    for number in range(steps):
        stepper.take(number, steps, "main", batches[number])
    return time.perf_counter() - start


def whole(steps: int, folder: Path) -> float:
    """The same steps through `pretrain`, as metrics.jsonl tells them; neither evaluation nor the last save counts."""
    ended = pretraining.pretrain(
        recipe_for(
            "bert-mini",
            ["objective=mlm", f"train.steps={steps}", "train.save_every=1h", "train.evaluate_every=1000000"],
        ),
        folder,
        fresh=False,
        console=Console(quiet=True),
    )
    return ended.used["minutes"] * 60


def main() -> None:
    """Alternate, and print the share that is the loop's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    recipe = recipe_for("bert-mini", ["objective=mlm"])
    material = gather(recipe, None, Console(quiet=True))
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            plain = bare(material, options.steps)
            full = whole(options.steps, Path(folder) / str(repeat))
            shares.append(full / plain - 1)
            print(f"bare {plain:.2f} s, whole {full:.2f} s, {shares[-1]:+.1%}", flush=True)
    print(
        table(
            ["steps", "repeats", "the loop's own cost (median)"],
            [[str(options.steps), str(options.repeats), f"{statistics.median(shares):+.1%}"]],
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
