"""Training steps compared with transformers: tokens per second, model FLOPs utilization, peak memory.

python -m benchmarks.steps [--repeats 9] [--only mlm-30522] [--no-memory]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.side_by_side import alternate, ratio, table
from meristem.config.settings import find_class
from meristem.describe.describe_recipe import BlankTokenizer
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import Model
from meristem.learning.learner import Learner, collect_heads
from meristem.objectives.clm import CLMObjective
from meristem.objectives.mlm import MLMObjective
from meristem.training.budget import PEAK_SIZE, total_step_flops
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper
from meristem.utils.randomness import SampleRng

CASES = {
    "mlm": {"family": "bert", "max_length": 128, "rows": 32},
    "clm": {"family": "gpt2", "max_length": 256, "rows": 16},
}
PRODUCT = 2 * PEAK_SIZE**3
SHAPE = {"layers": 4, "hidden_size": 256, "heads": 4}


def batch_for(kind: str, vocabulary: int) -> tuple[Any, Batch]:
    """An objective and one batch of random tokens for it."""
    blank: Any = BlankTokenizer(vocabulary)
    objective = (
        MLMObjective(MLMObjective.Settings(), blank) if kind == "mlm" else CLMObjective(CLMObjective.Settings(), blank)
    )
    length, rng = CASES[kind]["length"] + (kind == "clm"), np.random.default_rng(0)
    rows = []
    for number in range(CASES[kind]["rows"]):
        tokens = rng.integers(5, vocabulary, length)
        row = Row(inputs={"tokens": tokens}, metadata={"special": np.zeros(length, bool)}, sample_id=number)
        rows.append(objective.prepare(row, SampleRng(0, 0, number)))
    return objective, collate(rows, objective, {"tokens": 0})


def ours(kind: str, vocabulary: int, dropout: float) -> tuple[Callable[[], object], Learner, Batch]:
    """One training step of ours, optimizer included."""
    family = find_class("models", CASES[kind]["family"])
    objective, batch = batch_for(kind, vocabulary)
    settings = family.Settings(**SHAPE, max_length=CASES[kind]["length"], dropout=dropout)
    objectives = {"main": objective}
    learner = Learner(Model(family(settings, vocabulary), collect_heads(objectives)), objectives).train()
    train = TrainSettings(steps=1000, max_grad_norm=None)
    stepper = Stepper(
        learner=learner, optimizers=build_optimizers(learner.model, train), settings=train, device=torch.device("cpu")
    )
    return lambda: stepper.train_step(0, 1000, "main", [batch]), learner, batch


def theirs(kind: str, vocabulary: int, dropout: float) -> Callable[[], object]:
    """The same step with transformers' model, SDPA, and torch's fused AdamW."""
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    _, batch = batch_for(kind, vocabulary)
    length = CASES[kind]["length"]
    tokens = batch.inputs["tokens"]
    labels = torch.full_like(tokens, -100)
    if kind == "mlm":
        labels.view(-1)[batch.targets["mlm"]["at"]] = batch.targets["mlm"]["values"]
        config = BertConfig(
            vocab_size=vocabulary,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            max_position_embeddings=length,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation="sdpa",
        )
        model: Any = BertForMaskedLM(config)
    else:
        labels = tokens
        config = GPT2Config(
            vocab_size=vocabulary,
            n_embd=256,
            n_layer=4,
            n_head=4,
            n_positions=length,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            attn_implementation="sdpa",
            use_cache=False,
        )
        model = GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def product() -> Callable[[], object]:
    """The matrix product that measures the machine's peak, alternated with the steps."""
    a, b = torch.randn(2, PEAK_SIZE, PEAK_SIZE)
    return lambda: a @ b


def memory(kind: str, vocabulary: int, side: str) -> int:
    """Peak memory of three steps above the idle process, measured in a new process."""
    code = f"import benchmarks.steps as s; s.report_memory({kind!r}, {vocabulary}, {side!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.strip().splitlines()[-1]))


def report_memory(kind: str, vocabulary: int, side: str) -> None:
    """Print how much the steps add to this process's peak memory."""
    import transformers  # noqa: F401  # both sides have the same imports

    before = _highest()
    step = ours(kind, vocabulary, 0.0)[0] if side == "ours" else theirs(kind, vocabulary, 0.0)
    for _ in range(3):
        step()
    print(json.dumps(_highest() - before))


def _highest() -> int:
    """Peak memory of this process; getrusage would include the parent's."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Every case, printed as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only")
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    rows = []
    for kind in CASES:
        for vocabulary in (30_522, 8_192):
            for dropout in (0.0, 0.1):
                if options.only and options.only != f"{kind}-{vocabulary}":
                    continue
                step, learner, batch = ours(kind, vocabulary, dropout)
                sides = {"ours": step, "theirs": theirs(kind, vocabulary, dropout), "product": product()}
                timings = alternate(sides, repeats=options.repeats, warmup=2)
                faster, low, high = ratio(timings, "ours", "theirs")
                used = total_step_flops(learner, "main", [batch]) / PRODUCT * ratio(timings, "ours", "product")[0]
                less = "–"
                if not options.no_memory and vocabulary == 30_522 and not dropout:
                    less = f"{memory(kind, vocabulary, 'ours') / memory(kind, vocabulary, 'theirs'):.2f}×"
                rows.append(
                    [
                        kind,
                        f"{vocabulary:,}",
                        f"{dropout:g}",
                        f"{batch.num_tokens / timings['ours'].median:,.0f}",
                        f"{batch.num_tokens / timings['theirs'].median:,.0f}",
                        f"{faster:.2f}× ({low:.2f}–{high:.2f})",
                        f"{used:.2f}",
                        less,
                    ]
                )
                print(rows[-1], flush=True)
    print(
        table(
            [
                "step",
                "vocabulary",
                "dropout",
                "ours tok/s",
                "transformers tok/s",
                "ratio (quartiles)",
                "of peak",
                "memory",
            ],
            rows,
        )
    )


if __name__ == "__main__":
    main()
