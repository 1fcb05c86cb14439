"""Training steps of XLNet, BART, T5, ELECTRA and an LSTM seq2seq, each beside the best implementation in PyTorch.

    python -m benchmarks.family_steps [--repeats 7] [--only xlnet,t5] [--vocabulary 8192] [--processor-time]

Both sides in float32 and in bfloat16 (theirs under autocast), the faster one counts; 4 layers × 256, dropout 0.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.family_baselines import (
    BASELINES,
    ELECTRA_EMBEDDING,
    FFN_SIZE,
    GATED_FFN_SIZE,
    HEADS,
    HIDDEN_SIZE,
    LAYERS,
    RNN_LAYERS,
    BaselineCase,
    optimizer_step,
)
from benchmarks.side_by_side import alternate, fastest, ratio, table
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.describe.describe_recipe import BlankTokenizer
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.learner import Learner, collect_heads
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import Precision
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper
from meristem.utils.randomness import SampleRng

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
SHAPE = {"layers": LAYERS, "hidden_size": HIDDEN_SIZE, "heads": HEADS, "ffn_size": FFN_SIZE}
PRE_NORM_T5 = {
    "activation": "geglu", "ffn_size": GATED_FFN_SIZE, "norm": "rms", "norm_position": "pre", "bias": False,
    "position_encoding": "none", "relative_buckets": 32, "scale_embeddings": False, "scale_attention": False,
    "scale_output": True,
}  # fmt: skip
BART = {"activation": "gelu", "position_encoding": "learned", "scale_embeddings": False, "embedding_norm": True}
CASES: dict[str, tuple[str, str, int, int, dict[str, Any]]] = {
    "xlnet": ("xlnet", "plm", 32, 128, SHAPE),
    "bart": ("transformer", "seq2seq", 16, 128, {**SHAPE, **BART}),
    "t5": ("transformer", "seq2seq", 16, 128, {**SHAPE, **PRE_NORM_T5}),
    "electra": ("electra", "rtd", 32, 128, {**SHAPE, "embedding_size": ELECTRA_EMBEDDING}),
    "rnn": ("rnn", "seq2seq", 32, 64, {"layers": RNN_LAYERS, "hidden_size": HIDDEN_SIZE}),
}
"""Name → family, objective, rows of a step, tokens of a row (of source and of target), settings of the model."""
HEADER = [
    "step",
    "vocabulary",
    "ours float32",
    "ours bfloat16",
    "theirs float32",
    "theirs bfloat16",
    "best against best",
]


def our_objective_and_batch(name: str, vocabulary: int) -> tuple[Any, Batch]:
    """The objective, and a batch of random tokens that it has prepared."""
    _, objective_name, num_rows, length, _ = CASES[name]
    blank: Any = BlankTokenizer(vocabulary)
    objective_class = OBJECTIVES[objective_name]
    objective, rng, rows = objective_class(objective_class.Settings(), blank), np.random.default_rng(0), []
    for number in range(num_rows):
        tokens, source = rng.integers(5, vocabulary, (2, length))
        if objective_name == "seq2seq":
            rows.append(objective.build_row(Row(inputs={}, sample_id=number), tokens, source=source))
            continue
        row = Row(inputs={"tokens": tokens}, metadata={"special": np.zeros(length, bool)}, sample_id=number)
        rows.append(objective.prepare(row, SampleRng(0, 0, number)))
    return objective, collate(rows, objective, {"tokens": 0, "source": 0})


def our_step(name: str, vocabulary: int, precision: Precision) -> Callable[[], object]:
    """One training step of ours, optimizer included."""
    family_name, _, _, length, settings = CASES[name]
    objective, batch = our_objective_and_batch(name, vocabulary)
    family = MODEL_FAMILIES[family_name]
    torch.manual_seed(0)
    model = Model(
        family(family.Settings(**settings, max_length=length), vocabulary), collect_heads({"main": objective})
    )
    train = TrainSettings(steps=1000, max_grad_norm=None)
    stepper = Stepper(
        learner=Learner(model, {"main": objective}).train(),
        optimizers=build_optimizers(model, train),
        settings=train,
        device=torch.device("cpu"),
        precision=precision,
    )
    return lambda: stepper.train_step(0, 1000, "main", [batch])


def their_step(name: str, vocabulary: int, precision: Precision) -> Callable[[], object]:
    """The same step of the other implementation, on the same batch."""
    _, batch = our_objective_and_batch(name, vocabulary)
    torch.manual_seed(0)
    model, loss = BASELINES[name](BaselineCase(batch=batch, vocabulary=vocabulary, length=CASES[name][3]))
    return optimizer_step(model, loss, precision)


def measure(name: str, vocabulary: int, repeats: int, clock: Callable[[], float]) -> list[str]:
    """One row of the table: tokens per second of both in both precisions, and the ratio of the faster ones."""
    sides = {f"ours {precision}": our_step(name, vocabulary, precision) for precision in PRECISIONS}
    sides |= {f"theirs {precision}": their_step(name, vocabulary, precision) for precision in PRECISIONS}
    timings = alternate(sides, repeats=repeats, warmup=2, clock=clock)
    ours, theirs = (
        fastest(timings, [f"{side} {precision}" for precision in PRECISIONS]) for side in ("ours", "theirs")
    )
    speedup, low, high = ratio(timings, ours, theirs)
    num_tokens = our_objective_and_batch(name, vocabulary)[1].num_tokens
    speeds = [f"{num_tokens / timing.median:,.0f}" for timing in timings.values()]
    return [name, f"{vocabulary:,}", *speeds, f"{speedup:.2f}× ({low:.2f}–{high:.2f})"]


def main() -> None:
    """Every case, printed as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default=",".join(CASES), help="names, separated by commas")
    parser.add_argument("--vocabulary", type=int, action="append", help="8192 and 30522 unless given")
    parser.add_argument("--processor-time", action="store_true", help="for one thread on a machine with other work")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    print(f"{torch.get_num_threads()} threads; {', '.join(bfloat16_features()) or 'no bfloat16 units'}")
    rows = []
    for name in options.only.split(","):
        for vocabulary in options.vocabulary or (8_192, 30_522):
            rows.append(measure(name, vocabulary, options.repeats, clock))
            print(rows[-1], flush=True)
    print(table(HEADER, rows))


if __name__ == "__main__":
    main()
