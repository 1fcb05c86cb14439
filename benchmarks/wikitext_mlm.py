"""MLM loss on WikiText-2 after equal training time: a Meristem recipe compared with transformers' BertForMaskedLM.

    python -m benchmarks.wikitext_mlm ../shared/data/wikitext-2 [--minutes 8] [--seeds 0 1 2] [--sides ours theirs]
    python -m benchmarks.wikitext_mlm ../shared/data/wikitext-2 --sides ours --label ours-3x128 --set model.layers=3 …

Same WordPiece of 8,192 tokens, same width and depth, same masked batches in training and validation. Finished runs are
stored in docs/results/wikitext-2.json and not run again.
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
from meristem.config.recipe import read_recipe, resolve_recipe
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.feed import Feed
from meristem.dataset.prepare import prepare_dataset, prepare_tokenizer
from meristem.inputs.batch import Batch
from meristem.learning.build import build_feeds, build_learner
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import choose_precision
from meristem.training.step import Stepper

OUT = RESULTS / "wikitext-2.json"
EVALUATED_ROWS = 128  # validation rows evaluated during training; all of them at the end
LOOK_EVERY = 15.0


@dataclass(frozen=True)
class Side:
    """One run: its curve of (seconds, loss on part of the validation data) and its final loss on all of it."""

    side: str
    seed: int
    minutes: float
    steps: int
    loss: float
    curve: list[tuple[float, float]]


def load_data(folder: Path, overrides: list[str], recipe: str) -> tuple[Any, Any, Feed, Feed]:
    """The recipe on WikiText-2: resolved recipe, tokenizer, training feed and the validation feed of both sides."""
    plain = [
        "corpus.validation=0",
        "corpus.test=0",
        "corpus.deduplicate=false",
        "objective=mlm",
        "corpus.document=line",
    ]
    resolved = resolve_recipe(*read_recipe(recipe), [*plain, f"corpus.source={folder / 'train.txt'}", *overrides])
    console = Console(stderr=True)
    tokenizer = prepare_tokenizer(resolved.tokenizer, [resolved.corpus], console)
    feeds = []
    for name, seed in (("train.txt", resolved.train.seed), ("valid.txt", 0)):
        corpus = CorpusSettings(source=str(folder / name), validation=0, test=0, deduplicate=False, document="line")
        store = prepare_dataset(corpus, tokenizer, resolved.dataset, keep_words=False, console=console).dataset
        learner = build_learner(resolved, tokenizer)
        feeds.append(
            build_feeds(resolved, learner.objectives, tokenizer, {"main": store}, split="train", seed=seed)["main"]
        )
    return resolved, tokenizer, feeds[0], feeds[1]


def train(
    minutes: float, step: Callable[[int, int], None], validation_loss: Callable[[int | None], float]
) -> tuple[int, float, list[tuple[float, float]]]:
    """Train until the minutes are over, with evaluations in between; only training time counts."""
    spent, last_evaluation, number, curve = 0.0, 0.0, 0, list[tuple[float, float]]()
    while spent < minutes * 60:
        total = max(number + 1, round(number * minutes * 60 / spent)) if number >= 3 else 1000
        start = time.perf_counter()
        step(number, total)
        spent += time.perf_counter() - start
        number += 1
        if spent - last_evaluation >= LOOK_EVERY:
            last_evaluation = spent
            curve.append((round(spent, 1), validation_loss(EVALUATED_ROWS)))
            print(f"{spent:6.0f} s  step {number}  {curve[-1][1]:.3f}", flush=True)
    return number, validation_loss(None), curve


def ours(folder: Path, minutes: float, seed: int, overrides: list[str], recipe: str, label: str) -> Side:
    """The recipe, with the same steps as the training loop."""
    resolved, tokenizer, feed, validation_feed = load_data(folder, [f"train.seed={seed}", *overrides], recipe)
    learner = build_learner(resolved, tokenizer).train()
    stepper = Stepper(
        learner=learner,
        optimizers=build_optimizers(learner.model, resolved.train),
        settings=resolved.train,
        device=torch.device("cpu"),
        precision=choose_precision(resolved, torch.device("cpu"), learner.model.backbone),
    )

    def validation_loss(rows: int | None) -> float:
        from meristem.evaluation.held_out_loss import evaluate_held_out

        return evaluate_held_out(learner, "main", validation_feed, max_rows=rows).metrics()["loss"]

    steps, loss, curve = train(minutes, lambda n, total: _take(stepper, feed, n, total), validation_loss)
    return Side(label, seed, minutes, steps, loss, curve)


def _take(stepper: Stepper, feed: Feed, number: int, total: int) -> None:
    stepper.train_step(number, total, "main", [feed.batch(number, micro) for micro in range(feed.micro_steps)])


def theirs(folder: Path, minutes: float, rate: float) -> Side:
    """BertForMaskedLM of the same width and depth, AdamW, the same batches, warm-up and cosine."""
    from transformers import BertConfig, BertForMaskedLM

    resolved, tokenizer, feed, validation_feed = load_data(folder, [], "bert-mini-prenorm")
    torch.manual_seed(0)
    s = resolved.model
    model: Any = BertForMaskedLM(
        BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=s.hidden_size,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            intermediate_size=4 * s.hidden_size,
            max_position_embeddings=s.max_length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)

    def loss_of(batch: Batch) -> torch.Tensor:
        labels = torch.full_like(batch.inputs["tokens"], -100)
        labels.view(-1)[batch.targets["mlm"]["at"]] = batch.targets["mlm"]["values"]
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

    def validation_loss(rows: int | None) -> float:
        model.eval()
        size = min(len(validation_feed.view), rows or len(validation_feed.view))
        total, number = 0.0, 0
        with torch.inference_mode():
            for first in range(0, size, 32):
                batch = validation_feed.batch_at(first, min(32, size - first))
                number += batch.target_counts["mlm"]
                total += float(loss_of(batch)) * batch.target_counts["mlm"]
        model.train()
        return total / number

    steps, loss, curve = train(minutes, step, validation_loss)
    return Side("theirs", 0, minutes, steps, loss, curve)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sides", nargs="+", default=["theirs", "ours"])
    parser.add_argument("--recipe", default="bert-mini-prenorm")
    parser.add_argument(
        "--set", nargs="*", default=[], help="overrides of the recipe; results are stored if they have a label"
    )
    parser.add_argument("--label", default="ours", help="name of our side in the table")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate of AdamW on their side")
    options = parser.parse_args()
    is_stored = not options.set or options.label != "ours"
    saved_results: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() and is_stored else {}
    for side in options.sides:
        for seed in options.seeds if side == "ours" else [0]:
            name = f"{options.label if side == 'ours' else side}-{seed}-{options.minutes:g}"
            if name in saved_results:
                continue
            print(name, flush=True)
            result = (
                ours(options.folder, options.minutes, seed, options.set, options.recipe, options.label)
                if side == "ours"
                else theirs(options.folder, options.minutes, options.rate)
            )
            saved_results[name] = asdict(result)
            if is_stored:
                OUT.parent.mkdir(parents=True, exist_ok=True)
                OUT.write_text(json.dumps(saved_results, indent=1))
            print(f"{name}: {result.loss:.3f} after {result.steps} steps", flush=True)
    print(summary(saved_results, options.minutes))


def summary(saved_results: dict[str, Any], minutes: float) -> str:
    """Final losses, and when ours reached theirs."""
    runs = [Side(**value) for value in saved_results.values() if value["minutes"] == minutes]
    target_loss = next((run.loss for run in runs if run.side == "theirs"), None)
    rows = []
    for run in runs:
        reached = next(
            (f"{seconds:.0f} s" for seconds, loss in run.curve if target_loss is not None and loss <= target_loss), "–"
        )
        rows.append(
            [run.side, str(run.seed), str(run.steps), f"{run.loss:.3f}", "–" if run.side == "theirs" else reached]
        )
    return table(["side", "seed", "steps", f"validation loss at {minutes:g} min", "theirs reached after"], rows)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
