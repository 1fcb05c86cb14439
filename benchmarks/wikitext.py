"""Masked loss on WikiText-2 after the same minutes of training: a Meristem recipe beside transformers' BertForMaskedLM.

    python -m benchmarks.wikitext ../shared/data/wikitext-2 [--minutes 8] [--seeds 0 1 2] [--sides ours theirs]

Same WordPiece of 8,192 tokens, same width and depth, same masked batches in training and validation. A run that is
finished is kept in docs/results/wikitext-2.json and not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem.batch import Batch
from meristem.corpus.settings import CorpusSettings
from meristem.learning.assemble import feeds_of, learner_of
from meristem.learning.feed import Feed
from meristem.recipe import read, resolve
from meristem.store.prepare import store_for, tokenizer_for
from meristem.training.optimizers import optimizers
from meristem.training.step import Stepper

OUT = RESULTS / "wikitext-2.json"
GLANCE = 128  # validation rows looked at along the way; the end reads all of them
LOOK_EVERY = 15.0


@dataclass(frozen=True)
class Side:
    """One run: its curve of (seconds, loss on a part of validation) and its loss on all of it at the end."""

    side: str
    seed: int
    minutes: float
    steps: int
    loss: float
    curve: list[tuple[float, float]]


def material(folder: Path, overrides: list[str], recipe: str) -> tuple[Any, Any, Feed, Feed]:
    """The recipe on WikiText-2: its training feed, and the validation feed both sides are judged on."""
    plain = [
        "corpus.validation=0",
        "corpus.test=0",
        "corpus.deduplicate=false",
        "objective=mlm",
        "corpus.document=line",
    ]
    resolved = resolve(*read(recipe), [*plain, f"corpus.source={folder / 'train.txt'}", *overrides])
    console = Console(stderr=True)
    tokenizer = tokenizer_for(resolved.tokenizer, [resolved.corpus], console)
    feeds = []
    for name, seed in (("train.txt", resolved.train.seed), ("valid.txt", 0)):
        corpus = CorpusSettings(source=str(folder / name), validation=0, test=0, deduplicate=False, document="line")
        store = store_for(corpus, tokenizer, resolved.store, words=False, console=console).store
        learner = learner_of(resolved, tokenizer)
        feeds.append(
            feeds_of(resolved, learner.objectives, tokenizer, {"main": store}, split="train", seed=seed)["main"]
        )
    return resolved, tokenizer, feeds[0], feeds[1]


def train(
    minutes: float, step: Callable[[int, int], None], judge: Callable[[int | None], float]
) -> tuple[int, float, list[tuple[float, float]]]:
    """Steps until the minutes are over, looking along the way; only training counts as time."""
    spent, looked, number, curve = 0.0, 0.0, 0, list[tuple[float, float]]()
    while spent < minutes * 60:
        total = max(number + 1, round(number * minutes * 60 / spent)) if number >= 3 else 1000
        start = time.perf_counter()
        step(number, total)
        spent += time.perf_counter() - start
        number += 1
        if spent - looked >= LOOK_EVERY:
            looked = spent
            curve.append((round(spent, 1), judge(GLANCE)))
            print(f"{spent:6.0f} s  step {number}  {curve[-1][1]:.3f}", flush=True)
    return number, judge(None), curve


def ours(folder: Path, minutes: float, seed: int, overrides: list[str], recipe: str) -> Side:
    """The recipe, stepped as the loop steps it."""
    resolved, tokenizer, feed, held = material(folder, [f"train.seed={seed}", *overrides], recipe)
    learner = learner_of(resolved, tokenizer).train()
    stepper = Stepper(
        learner=learner,
        optimizers=optimizers(learner.model, resolved.train),
        settings=resolved.train,
        device=torch.device("cpu"),
    )

    def judge(rows: int | None) -> float:
        from meristem.evaluation.held_out import held_out

        return held_out(learner, "main", held, rows=rows).metrics()["loss"]

    steps, loss, curve = train(minutes, lambda n, total: _take(stepper, feed, n, total), judge)
    return Side("ours", seed, minutes, steps, loss, curve)


def _take(stepper: Stepper, feed: Feed, number: int, total: int) -> None:
    stepper.take(number, total, "main", [feed.batch(number, micro) for micro in range(feed.micro_steps)])


def theirs(folder: Path, minutes: float, rate: float) -> Side:
    """BertForMaskedLM of the same width and depth, AdamW, the same batches, warm-up and cosine."""
    from transformers import BertConfig, BertForMaskedLM

    resolved, tokenizer, feed, held = material(folder, [], "bert-mini-prenorm")
    torch.manual_seed(0)
    s = resolved.model
    model: Any = BertForMaskedLM(
        BertConfig(
            vocab_size=tokenizer.size,
            hidden_size=s.width,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            intermediate_size=4 * s.width,
            max_position_embeddings=s.length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)

    def loss_of(batch: Batch) -> torch.Tensor:
        labels = torch.full_like(batch.inputs["tokens"], -100)
        labels.view(-1)[batch.goals["mlm"]["at"]] = batch.goals["mlm"]["values"]
        return model(input_ids=batch.inputs["tokens"], labels=labels).loss  # type: ignore[no-any-return]  # untyped model

    def step(number: int, total: int) -> None:
        warm = max(1, round(0.05 * total))
        share = (
            min(1.0, (number + 1) / warm)
            if number < warm
            else 0.5 * (1 + math.cos(math.pi * (number - warm) / max(1, total - warm)))
        )
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        loss_of(feed.batch(number, 0)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def judge(rows: int | None) -> float:
        model.eval()
        size = min(len(held.view), rows or len(held.view))
        total, number = 0.0, 0
        with torch.inference_mode():
            for first in range(0, size, 32):
                batch = held.at(first, min(32, size - first))
                number += batch.counts["mlm"]
                total += float(loss_of(batch)) * batch.counts["mlm"]
        model.train()
        return total / number

    steps, loss, curve = train(minutes, step, judge)
    return Side("theirs", 0, minutes, steps, loss, curve)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sides", nargs="+", default=["theirs", "ours"])
    parser.add_argument("--recipe", default="bert-mini-prenorm")
    parser.add_argument(
        "--set", nargs="*", default=[], help="overrides of the recipe, for trying things; results are not kept"
    )
    parser.add_argument("--rate", type=float, default=5e-4, help="AdamW's rate on their side")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() and not options.set else {}
    for side in options.sides:
        for seed in options.seeds if side == "ours" else [0]:
            name = f"{side}-{seed}-{options.minutes:g}"
            if name in kept:
                continue
            print(name, flush=True)
            made = (
                ours(options.folder, options.minutes, seed, options.set, options.recipe)
                if side == "ours"
                else theirs(options.folder, options.minutes, options.rate)
            )
            kept[name] = asdict(made)
            if not options.set:
                OUT.parent.mkdir(parents=True, exist_ok=True)
                OUT.write_text(json.dumps(kept, indent=1))
            print(f"{name}: {made.loss:.3f} after {made.steps} steps", flush=True)
    print(summary(kept, options.minutes))


def summary(kept: dict[str, Any], minutes: float) -> str:
    """Losses at the end, and how soon ours reached theirs."""
    runs = [Side(**value) for value in kept.values() if value["minutes"] == minutes]
    goal = next((run.loss for run in runs if run.side == "theirs"), None)
    rows = []
    for run in runs:
        reached = next((f"{seconds:.0f} s" for seconds, loss in run.curve if goal is not None and loss <= goal), "–")
        rows.append(
            [run.side, str(run.seed), str(run.steps), f"{run.loss:.3f}", reached if run.side == "ours" else "–"]
        )
    return table(["side", "seed", "steps", f"validation loss at {minutes:g} min", "theirs reached after"], rows)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
