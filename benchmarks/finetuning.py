"""Fine-tuning and prediction compared with transformers' Trainer and pipeline: same weights, same data, alternated.

    python -m benchmarks.finetuning ../shared/data [--repeats 3] [--samples 4096] [--sentences 10000]
    python -m benchmarks.finetuning ../shared/data --run runs/sst2 --processor-time

Each side trains a BERT of 4 layers and width 256 with random weights for one epoch on SST-2: batches of 32, AdamW with
the same learning rates, dropout and clipping; timed from the file to a trained model, and the training alone. Besides
the Trainer, which needs accelerate, a plain loop around their model does the same arithmetic. Then both predict with
the same weights: `LoadedModel.predict` and `pipeline("text-classification", batch_size=32)`, in both precisions.
Ratios are medians over alternated repeats; the results are written to docs/results/finetuning.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import torch
import transformers
from rich.console import Console

import meristem
from benchmarks.side_by_side import RESULTS, alternate, ratio, table
from meristem.config.recipe import resolve_recipe
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

SHAPE = {"family": "bert", "layers": 4, "hidden_size": 256, "heads": 4, "max_length": 128}
BATCH, RATE = 32, 3e-4
OURS = "meristem"
PLAIN = "transformers model in a plain loop"
PLAIN_GROUPED = f"{PLAIN}, batches of similar length"
AUTOCAST = "pipeline, bfloat16 autocast"
RANDOM, GROUPED = "Trainer", "Trainer, group_by_length"
MISSING = (
    "The Trainer itself was not measured: it needs accelerate, which is not installed here "
    '(`pip install "accelerate>=1.1.0"`, then run the command again). The plain loop does its arithmetic with nothing '
    "around it."
)


@dataclass(frozen=True)
class TrainingTime:
    """One training: seconds in total and of the training alone, and the mean loss."""

    whole: float
    training: float
    loss: float


def lines(path: Path) -> list[tuple[str, str]]:
    """Sentences and labels."""
    rows = path.read_text(encoding="utf-8").splitlines()[1:]
    return [(row.rsplit("\t", 1)[0].strip(), row.rsplit("\t", 1)[1]) for row in rows]


def make_start(folder: Path, sentences: list[str]) -> Path:
    """A run with random weights and its own vocabulary, and the same exported for transformers."""
    recipe = resolve_recipe(
        "start", {"model": SHAPE, "objective": [{"name": "mlm"}], "tokenizer": {"vocab_size": 8192}}
    )
    words = train_tokenizer(recipe.tokenizer, sentences)
    model = build_learner(recipe, words).model
    state = checkpoint_state(model, {name: value.detach() for name, value in model.named_parameters()})
    run = write_run(folder / "start", recipe, words, state, {}).path
    meristem.export(run, folder / "folder", architecture="BertForMaskedLM")
    return run


def ours(start: Path, data: Path, out: Path) -> TrainingTime:
    """`meristem finetune`."""
    shutil.rmtree(out, ignore_errors=True)
    before = time.perf_counter()
    settings = {"from": str(start), "data.train": str(data), "data.held_out": 0, "train.epochs": 1,
                "train.batch_samples": BATCH, "train.learning_rate": RATE, "train.warmup": 0,
                "train.schedule": "linear",
                "train.betas": [0.9, 0.999], "train.weight_decay": 0.0, "train.log_every": 8}  # fmt: skip
    meristem.api.finetune("classification", settings, out=out, console=Console(quiet=True))
    duration = time.perf_counter() - before
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [record for record in logged if record["kind"] == "train"]
    return TrainingTime(duration, steps[-1]["seconds"], statistics.mean(step["loss"] for step in steps))


def theirs(folder: Path, data: Path, out: Path, *, grouped: bool, plain: bool) -> TrainingTime:
    """Their model on the same file, tokenized at once and padded per batch, with their Trainer or a plain loop."""
    shutil.rmtree(out, ignore_errors=True)
    before = time.perf_counter()
    rows = lines(data)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = words([text for text, _ in rows], truncation=True)
    samples = [{**{key: encoded[key][n] for key in encoded}, "labels": int(label)} for n, (_, label) in enumerate(rows)]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    fit = _looped if plain else _trained
    seconds, loss = fit(model, samples, transformers.DataCollatorWithPadding(words), out, grouped)
    return TrainingTime(time.perf_counter() - before, seconds, loss)


def _trained(model: Any, samples: list[Any], collate: Any, out: Path, grouped: bool) -> tuple[float, float]:
    """Their Trainer as its guide uses it."""
    arguments = transformers.TrainingArguments(
        output_dir=str(out), num_train_epochs=1, per_device_train_batch_size=BATCH, learning_rate=RATE,
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, logging_strategy="no",
        train_sampling_strategy="group_by_length" if grouped else "random",
    )  # fmt: skip
    metrics = transformers.Trainer(model, arguments, train_dataset=samples, data_collator=collate).train().metrics
    return metrics["train_runtime"], metrics["train_loss"]


def _looped(model: Any, samples: list[Any], collate: Any, out: Path, grouped: bool) -> tuple[float, float]:
    """A plain training loop equivalent to one epoch of the Trainer: fused AdamW, linear schedule, clipping."""
    start = time.perf_counter()
    order = random.Random(0).sample(range(len(samples)), len(samples))
    if grouped:  # as their sampler: sorted within blocks of 50 batches
        stretch = 50 * BATCH
        order = [
            n
            for first in range(0, len(order), stretch)
            for n in sorted(order[first : first + stretch], key=lambda n: -len(samples[n]["input_ids"]))
        ]
    steps = -(-len(samples) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses = []
    model.train()
    for first in range(0, len(order), BATCH):
        loss = model(**collate([samples[n] for n in order[first : first + BATCH]])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return time.perf_counter() - start, statistics.mean(losses)


def in_turns(sides: dict[str, Callable[[], TrainingTime]], repeats: int) -> dict[str, list[TrainingTime]]:
    """Results of every side, alternated over rounds, after a warm-up round."""
    durations: dict[str, list[TrainingTime]] = {name: [] for name in sides}
    for number in range(repeats + 1):
        for name, side in sides.items():
            duration = side()
            if number:
                durations[name].append(duration)
    return durations


def training_table(start: Path, data: Path, work_folder: Path, samples: int, repeats: int) -> str:
    """The table of training."""
    folder, has_trainer = work_folder / "folder", importlib.util.find_spec("accelerate") is not None
    sides: dict[str, Callable[[], TrainingTime]] = {OURS: lambda: ours(start, data, work_folder / "ours")}
    for plain, names in (True, (PLAIN, PLAIN_GROUPED)), (False, (RANDOM, GROUPED)):
        for grouped, name in enumerate(names) if plain or has_trainer else ():
            sides[name] = partial(theirs, folder, data, work_folder / "theirs", grouped=bool(grouped), plain=plain)
    durations = in_turns(sides, repeats)

    def times(name: str, part: str) -> str:
        pairs = zip(durations[OURS], durations[name], strict=True)
        return f"{statistics.median(getattr(b, part) / getattr(a, part) for a, b in pairs):.2f}"

    rows = [
        [
            name,
            f"{samples / statistics.median(timing.training for timing in durations_of_side):,.0f}",
            times(name, "training"),
            f"{statistics.median(timing.whole for timing in durations_of_side):.1f} s",
            times(name, "whole"),
            f"{statistics.median(timing.loss for timing in durations_of_side):.3f}",
        ]
        for name, durations_of_side in durations.items()
    ]
    table_text = table(
        ["side", "samples per second", "ours ×", "total, from file to model", "ours ×", "mean loss"], rows
    )
    return table_text if has_trainer else f"{table_text}\n\n{MISSING}"


def prediction_table(run: Path, work_folder: Path, sentences: list[str], **timing: Any) -> str:
    """The table of prediction in both precisions, and whether the labels agree."""
    meristem.export(run, work_folder / "taught")
    loaded = {
        OURS: meristem.load(run),
        f"{OURS}, float32": meristem.load(run, precision="float32"),
        f"{OURS}, int8": meristem.load(run, quantize="int8"),
    }
    pipeline = transformers.pipeline("text-classification", model=str(work_folder / "taught"), device="cpu")
    predictions: dict[str, list[dict[str, Any]]] = {}

    def predict_ours(side: str) -> None:
        predictions[side] = loaded[side].predict(sentences)

    def predict_theirs(side: str, *, bfloat16: bool) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            predictions[side] = pipeline(sentences, batch_size=BATCH)

    sides: dict[str, Callable[[], None]] = {side: partial(predict_ours, side) for side in loaded}
    sides["pipeline"] = partial(predict_theirs, "pipeline", bfloat16=False)
    sides[AUTOCAST] = partial(predict_theirs, AUTOCAST, bfloat16=True)
    timings = alternate(sides, **timing)
    best = min(("pipeline", AUTOCAST), key=lambda side: timings[side].median)
    rows = []
    for side, seconds in timings.items():
        pairs = list(zip(predictions[side], predictions["pipeline"], strict=True))
        num_same = sum(a["label"] == b["label"] for a, b in pairs)
        max_difference = max(abs(a["score"] - b["score"]) for a, b in pairs if a["label"] == b["label"])
        rows.append(
            [
                side,
                f"{len(sentences) / seconds.median:,.0f}",
                "{:.2f}× ({:.2f}–{:.2f})".format(*ratio(timings, side, best)),
                f"{num_same:,} of {len(pairs):,}",
                f"{max_difference:.1e}",
            ]
        )
    header = ["side", "sentences per second", "against the better pipeline", "same label", "largest difference"]
    return f"{table(header, rows)}\n\nLabels and scores are compared with the pipeline in float32."


def main() -> None:
    """Prepare, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with sst2/")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--run", type=Path, help="only predict, with this fine-tuned run, and print the table")
    parser.add_argument("--processor-time", action="store_true", help="time prediction by processor time")
    options, load = parser.parse_args(), os.getloadavg()[0]
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rows = lines(options.data / "sst2" / "train.tsv")
    random.Random(0).shuffle(rows)
    timing = {
        "repeats": options.repeats, "clock": time.process_time if options.processor_time else time.perf_counter
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place_:
        work_folder = Path(place_)
        if options.run is not None:
            texts = [text for text, _ in rows[: options.sentences]]
            print(prediction_table(options.run, work_folder, texts, **timing))
            return
        file = work_folder / "train.tsv"
        train_rows = rows[: options.samples]
        file.write_text("\n".join(["sentence\tlabel", *map("\t".join, train_rows)]) + "\n", encoding="utf-8")
        start = make_start(work_folder, [text for text, _ in rows])
        first = training_table(start, file, work_folder, len(train_rows), options.repeats)
        texts = [text for text, _ in rows[options.samples : options.samples + options.sentences]]
        second = prediction_table(work_folder / "ours", work_folder, texts, **timing)
    threads = torch.get_num_threads()
    shape = f"BERT, {SHAPE['layers']} layers, hidden size {SHAPE['hidden_size']}, 8,192 tokens"
    page = (
        "# Fine-tuning and prediction compared with transformers\n\n"
        f"`python -m benchmarks.finetuning DATA --repeats {options.repeats} --samples {options.samples} "
        f"--sentences {options.sentences}`, load average at the start {load:.1f}: {shape}, {threads} threads, "
        f"torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}; medians of "
        f"{options.repeats} alternated repeats.\n\n"
        f"## One epoch of SST-2, {options.samples:,} samples, batches of {BATCH}\n\n{first}\n\n"
        f"## Prediction over {options.sentences:,} sentences, transformers pipeline with batches of {BATCH}\n\n"
        f"{second}\n"
    )
    (RESULTS / "finetuning.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
