"""Relative attention compared with plain attention (both ours), and XLNet's permutation step with transformers'.

python -m benchmarks.relative_attention [--repeats 9] [--only relative|xlnet]
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
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.learner import Learner, collect_heads
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper
from meristem.utils.randomness import SampleRng

VOCABULARY = 30_522
SHAPE = {"layers": 4, "hidden_size": 256, "heads": 4, "dropout": 0.0}


def batch_of(objective: Any, rows: int, length: int, **extra: Any) -> Batch:
    """A batch of random tokens, masked by the objective."""
    rng = np.random.default_rng(0)
    prepared_rows = []
    for number in range(rows):
        tokens = rng.integers(5, VOCABULARY, length)
        row = Row(inputs={"tokens": tokens, **extra}, metadata={"special": np.zeros(length, bool)}, sample_id=number)
        prepared_rows.append(objective.prepare(row, SampleRng(0, 0, number)))
    return collate(prepared_rows, objective, {"tokens": 0})


def step_of(
    family: str, name: str, rows: int, length: int, fresh: bool | None = None, **settings: Any
) -> tuple[Callable[[], object], Batch]:
    """One training step of ours, optimizer included; with `fresh`, segment memory is on and full."""
    blank: Any = BlankTokenizer(VOCABULARY)
    kind, backbone = OBJECTIVES[name], MODEL_FAMILIES[family]
    objective = kind(kind.Settings(), blank)
    extra = {} if fresh is None else {"fresh": np.array([fresh])}
    batch = batch_of(objective, rows, length + (name == "clm"), **extra)
    objectives = {"main": objective}
    torch.manual_seed(0)
    model = backbone(backbone.Settings(**SHAPE, max_length=length, **settings), VOCABULARY)
    learner = Learner(Model(model, collect_heads(objectives)), objectives).train()
    train = TrainSettings(steps=1000, max_grad_norm=None)
    stepper = Stepper(
        learner=learner, optimizers=build_optimizers(learner.model, train), settings=train, device=torch.device("cpu")
    )
    return lambda: stepper.train_step(0, 1000, "main", [batch]), batch


def their_xlnet(batch: Batch) -> Callable[[], object]:
    """The same permutation step with transformers' XLNet and torch's fused AdamW."""
    from transformers import XLNetConfig, XLNetLMHeadModel

    tokens, order, slots = (batch.inputs[key] for key in ("tokens", "order", "slots"))
    config = XLNetConfig(vocab_size=VOCABULARY, d_model=256, n_layer=4, n_head=4, d_inner=1024, dropout=0.0,
                         use_mems_train=False)  # fmt: skip
    model: Any = XLNetLMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    mapping = torch.nn.functional.one_hot(slots, tokens.shape[1]).float()
    itself = torch.diag_embed(mapping.sum(1))
    hidden = ((order[:, None] > order[:, :, None]).float() + itself).clamp(max=1)
    labels = tokens.gather(1, slots)

    def step() -> None:
        model(input_ids=tokens, perm_mask=hidden, target_mapping=mapping, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def relative(repeats: int) -> list[list[str]]:
    """A causal step at length 256: Transformer-XL's attention against GPT-2's, vocabulary and all."""
    rows = []
    for memory_name, settings, fresh in (
        ("no memory", {"memory_length": 0}, None),
        ("memory 256", {"memory_length": 256}, False),
    ):
        plain, _ = step_of("gpt2", "clm", 16, 256, norm_position="post", activation="relu")
        ours, _ = step_of("transformer_xl", "clm", 16, 256, fresh, **settings)
        timings = alternate({"relative": ours, "plain": plain}, repeats=repeats, warmup=2)
        middle, low, high = (1 / value for value in ratio(timings, "relative", "plain"))
        rows.append([f"relative / plain, {memory_name}", f"{timings['relative'].median:.3f} s",
                     f"{timings['plain'].median:.3f} s", f"{middle:.2f}× ({high:.2f}–{low:.2f})"])  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def xlnet(repeats: int) -> list[list[str]]:
    """Speed ratio of a permutation step at length 128 with a sixth of the tokens predicted."""
    ours, batch = step_of("xlnet", "plm", 32, 128)
    timings = alternate({"ours": ours, "theirs": their_xlnet(batch)}, repeats=repeats, warmup=2)
    middle, low, high = ratio(timings, "ours", "theirs")
    row = ["transformers' XLNet / ours", f"{timings['theirs'].median:.3f} s", f"{timings['ours'].median:.3f} s",
           f"{middle:.2f}× ({low:.2f}–{high:.2f})"]  # fmt: skip
    print(row, flush=True)
    return [row]


def main() -> None:
    """Every case, printed as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=["relative", "xlnet"])
    options = parser.parse_args()
    rows = [row for case in (relative, xlnet) if options.only in (None, case.__name__) for row in case(options.repeats)]
    print(table(["step", "first", "second", "ratio (quartiles)"], rows))


if __name__ == "__main__":
    main()
