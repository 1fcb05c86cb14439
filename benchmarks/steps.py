"""Training steps compared with transformers: float32 and bfloat16 on both sides, share of the peak, peak memory.

python -m benchmarks.steps [--repeats 7] [--size mini|base] [--only mlm-30522] [--no-memory] [--processor-time]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.side_by_side import alternate, fastest, ratio, table
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.describe.describe_recipe import BlankTokenizer
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.learning.learner import Learner, collect_heads
from meristem.objectives.clm import CLMObjective
from meristem.objectives.mlm import MLMObjective
from meristem.training.budget import PEAK_SIZE, total_step_flops
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import Precision, product_dtype
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper
from meristem.utils.randomness import SampleRng

PRODUCT_FLOPS = 2 * PEAK_SIZE**3
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
VOCABULARIES = (30_522, 8_192)
HEADER = ["step", "size", "vocabulary", "ours float32", "ours bfloat16", "transformers float32",
          "transformers bfloat16", "best against best", "bfloat16 against float32", "of peak", "memory"]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of step at one size."""

    kind: str
    size: str
    vocabulary: int

    @property
    def shape(self) -> dict[str, int]:
        """Layers, hidden size and heads."""
        if self.size == "mini":
            return {"layers": 4, "hidden_size": 256, "heads": 4}
        return {"layers": 12, "hidden_size": 768, "heads": 12}

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return 128 if self.kind == "mlm" else 256

    @property
    def num_rows(self) -> int:
        """Rows of a step: 4,096 tokens at mini size, 2,048 at base size."""
        return (4096 if self.size == "mini" else 2048) // self.length


def batch_for(case: Case) -> tuple[Any, Batch]:
    """An objective and one batch of random tokens for it."""
    blank: Any = BlankTokenizer(case.vocabulary)
    objective_class = MLMObjective if case.kind == "mlm" else CLMObjective
    objective: Any = objective_class(objective_class.Settings(), blank)
    length, rng = case.length + (case.kind == "clm"), np.random.default_rng(0)
    rows = []
    for number in range(case.num_rows):
        tokens = rng.integers(5, case.vocabulary, length)
        row = Row(inputs={"tokens": tokens}, metadata={"special": np.zeros(length, bool)}, sample_id=number)
        rows.append(objective.prepare(row, SampleRng(0, 0, number)))
    return objective, collate(rows, objective, {"tokens": 0})


def our_step(case: Case, precision: Precision) -> tuple[Callable[[], object], Learner, Batch]:
    """One training step of ours, optimizer included."""
    family = MODEL_FAMILIES["bert" if case.kind == "mlm" else "gpt2"]
    objective, batch = batch_for(case)
    settings = family.Settings(**case.shape, max_length=case.length)
    objectives = {"main": objective}
    learner = Learner(Model(family(settings, case.vocabulary), collect_heads(objectives)), objectives).train()
    train = TrainSettings(steps=1000, max_grad_norm=None)
    stepper = Stepper(
        learner=learner,
        optimizers=build_optimizers(learner.model, train),
        settings=train,
        device=torch.device("cpu"),
        precision=precision,
    )
    return lambda: stepper.train_step(0, 1000, "main", [batch]), learner, batch


def their_step(case: Case, precision: Precision) -> Callable[[], object]:
    """The same step with transformers' model, SDPA, and torch's fused AdamW; bfloat16 is autocast."""
    _, batch = batch_for(case)
    tokens = batch.inputs["tokens"]
    labels = tokens
    if case.kind == "mlm":
        labels = torch.full_like(tokens, -100)
        labels.view(-1)[batch.targets["mlm"]["at"]] = batch.targets["mlm"]["values"]
    model = _their_model(case).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _their_model(case: Case) -> Any:
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    layers, hidden_size, heads = case.shape.values()
    if case.kind == "mlm":
        return BertForMaskedLM(
            BertConfig(
                vocab_size=case.vocabulary,
                hidden_size=hidden_size,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                intermediate_size=4 * hidden_size,
                max_position_embeddings=case.length,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                attn_implementation="sdpa",
            )
        )
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=case.vocabulary,
            n_embd=hidden_size,
            n_layer=layers,
            n_head=heads,
            n_positions=case.length,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation="sdpa",
            use_cache=False,
        )
    )


def product(precision: Precision) -> Callable[[], object]:
    """The matrix product that measures the machine's peak, alternated with the steps."""
    a, b = torch.randn(2, PEAK_SIZE, PEAK_SIZE).to(product_dtype(precision))
    return lambda: a @ b


def memory(case: Case, side: str) -> int:
    """Peak memory of three float32 steps above the idle process, measured in a new process."""
    code = f"import benchmarks.steps as s; s.report_memory(s.{case!r}, {side!r})"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(json.loads(completed.stdout.strip().splitlines()[-1]))


def report_memory(case: Case, side: str) -> None:
    """Print how much the steps add to this process's peak memory."""
    import transformers  # noqa: F401  # both sides have the same imports

    before = _peak_memory()
    step = our_step(case, "float32")[0] if side == "ours" else their_step(case, "float32")
    for _ in range(3):
        step()
    print(json.dumps(_peak_memory() - before))


def _peak_memory() -> int:
    """Peak memory of this process; getrusage would include the parent's."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure(case: Case, repeats: int, clock: Callable[[], float], *, with_memory: bool) -> list[str]:
    """One row of the table."""
    sides: dict[str, Callable[[], object]] = {}
    for precision in PRECISIONS:
        sides[f"ours {precision}"], learner, batch = our_step(case, precision)
        sides[f"transformers {precision}"] = their_step(case, precision)
        sides[f"product {precision}"] = product(precision)
    timings = alternate(sides, repeats=repeats, warmup=2, clock=clock)
    ours, theirs = (
        fastest(timings, [f"{side} {precision}" for precision in PRECISIONS]) for side in ("ours", "transformers")
    )
    speedup, low, high = ratio(timings, ours, theirs)
    own_speedup = ratio(timings, "ours bfloat16", "ours float32")[0]
    used = ours.split()[1]
    of_peak = total_step_flops(learner, "main", [batch]) / PRODUCT_FLOPS * ratio(timings, ours, f"product {used}")[0]
    less_memory = f"{memory(case, 'ours') / memory(case, 'theirs'):.2f}×" if with_memory else "–"
    speeds = (
        f"{batch.num_tokens / timings[f'{side} {precision}'].median:,.0f}"
        for side in ("ours", "transformers")
        for precision in PRECISIONS
    )
    return [case.kind, case.size, f"{case.vocabulary:,}", *speeds, f"{speedup:.2f}× ({low:.2f}–{high:.2f})",
            f"{own_speedup:.2f}×", f"{of_peak:.2f} ({used})", less_memory]  # fmt: skip


def main() -> None:
    """Every case, printed as a table; speeds are tokens per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--size", choices=("mini", "base"), default="mini")
    parser.add_argument("--only", help="for instance mlm-30522")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--processor-time", action="store_true", help="for one thread on a machine with other work")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    print(f"threads: {torch.get_num_threads()}; bfloat16 features: {', '.join(bfloat16_features()) or 'none'}")
    rows = []
    for kind in ("mlm", "clm"):
        for vocabulary in VOCABULARIES:
            if options.only and options.only != f"{kind}-{vocabulary}":
                continue
            case = Case(kind=kind, size=options.size, vocabulary=vocabulary)
            with_memory = not options.no_memory and vocabulary == VOCABULARIES[0]
            rows.append(measure(case, options.repeats, clock, with_memory=with_memory))
            print(rows[-1], flush=True)
    print(table(HEADER, rows))


if __name__ == "__main__":
    main()
