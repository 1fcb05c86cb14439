"""Replaced token detection (ELECTRA) compared with MLM on the same model: step time with a quarter-width generator.

python -m benchmarks.replaced_token_detection [--repeats 15] [--only electra]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.side_by_side import alternate, ratio, table
from meristem.describe.describe_recipe import BlankTokenizer
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.interfaces.objective import OBJECTIVES, Objective
from meristem.learning.learner import Learner, collect_heads
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper
from meristem.utils.randomness import SampleRng

VOCABULARY, LENGTH, ROWS = 30_522, 128, 32
SHAPE = {"layers": 4, "hidden_size": 256, "heads": 4, "max_length": LENGTH}
FAMILIES = ("electra", "bert")
"""Embedding sizes: 128, as in ELECTRA-small, and the model's own 256."""


def batch_for(objective: Objective) -> Batch:
    """One batch of random tokens."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(ROWS):
        tokens = rng.integers(5, VOCABULARY, LENGTH)
        row = Row(inputs={"tokens": tokens}, metadata={"special": np.zeros(LENGTH, bool)}, sample_id=number)
        rows.append(objective.prepare(row, SampleRng(0, 0, number)))
    return collate(rows, objective, {"tokens": 0})  # type: ignore[arg-type]  # neither makes several rows


def step_of(name: str, family: str, **settings: Any) -> Callable[[], object]:
    """One training step, optimizer included."""
    blank: Any = BlankTokenizer(VOCABULARY)
    kind, backbone = OBJECTIVES[name], MODEL_FAMILIES[family]
    objective = kind(kind.Settings(**settings), blank)
    objectives = {"main": objective}
    learner = Learner(Model(backbone(backbone.Settings(**SHAPE), VOCABULARY), collect_heads(objectives)), objectives)
    train = TrainSettings(steps=1000, max_grad_norm=None)
    stepper = Stepper(
        learner=learner.train(),
        optimizers=build_optimizers(learner.model, train),
        settings=train,
        device=torch.device("cpu"),
    )
    batch = batch_for(objective)
    return lambda: stepper.train_step(0, 1000, "main", [batch])


def main() -> None:
    """Every family, printed as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", choices=FAMILIES)
    options = parser.parse_args()
    rows = []
    for family in FAMILIES:
        if options.only and options.only != family:
            continue
        sides = {
            "mlm": step_of("mlm", family),
            "rtd": step_of("rtd", family, generator_size="1/4"),
            "random": step_of("rtd", family, generator_size="none"),
        }
        timings = alternate(sides, repeats=options.repeats, warmup=2)
        cells = [f"{timings[side].median * 1000:.0f} ms" for side in sides]
        for side in ("rtd", "random"):
            slowdown, low, high = ratio(timings, "mlm", side)
            cells.append(f"{slowdown:.2f}× ({low:.2f}–{high:.2f})")
        rows.append([family, *cells])
        print(rows[-1], flush=True)
    print(table(["model", "mlm", "rtd", "rtd, no generator", "rtd / mlm", "no generator / mlm"], rows))


if __name__ == "__main__":
    main()
