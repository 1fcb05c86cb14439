"""Inference in float32, in bfloat16 and with int8 weights: how far the answers differ, and how fast each is.

    OMP_NUM_THREADS=1 python -m benchmarks.inference_options ../shared/data [--runs FOLDER] [--repeats 5]

A GPT-2 is trained on WikiText-2 and a BERT is fine-tuned on SST-2 (in FOLDER, reused if they are there). Answers are
compared on held-out text, on built-in text and on labelled sentences; then the options are timed alternately, in
processor time with `--processor-time`. The results are written to docs/results/inference.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, alternate, ratio, table
from meristem import api
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.blocks.int8_linear import int8_features
from meristem.generation.head_selection import vocabulary_head
from meristem.generation.score import token_logprobs
from meristem.learning.inference_options import forward_precision, in_float32

OPTIONS: dict[str, dict[str, Any]] = {
    "float32": {"precision": "float32"},
    "bfloat16": {"precision": "bfloat16"},
    "int8": {"precision": "float32", "quantize": "int8"},
}
LANGUAGE_MODEL_HEADER = [
    "option", "perplexity, WikiText-2", "perplexity, built-in text", "same top token", "mean difference of log p",
    "99.9 % below", "largest", "lowest cosine of embeddings",
]  # fmt: skip
CLASSIFIER_HEADER = [
    "option", "accuracy", "same label", "largest difference of scores", "largest margin of a changed label"
]  # fmt: skip
SPEED_HEADER = ["operation", "float32", "bfloat16", "int8"]
BUILT_IN = "builtin:microworld-en?size=400&seed=7"
GPT2_MINUTES, TASK_STEPS = 6, 400
QUIET = Console(quiet=True)


def train_language_model(data: Path, runs: Path) -> Path:
    """A GPT-2 of 4 layers × 256 on WikiText-2."""
    if not (runs / "gpt2" / "finished.json").is_file():
        settings = {"train.minutes": GPT2_MINUTES, "train.threads": torch.get_num_threads()}
        api.pretrain("gpt2-mini", settings, source=data / "wikitext-2" / "train.txt", out=runs / "gpt2", console=QUIET)
    return runs / "gpt2"


def train_classifier(data: Path, runs: Path) -> Path:
    """A BERT of 4 layers × 256 on SST-2, from random weights."""
    if not (runs / "sst2" / "finished.json").is_file():
        shape = {"model.layers": 4, "model.hidden_size": 256, "model.heads": 4, "model.max_length": 128}
        files = {"data.train": str(data / "sst2" / "train.tsv"), "data.validation": str(data / "sst2" / "dev.tsv")}
        settings = {**shape, **files, "train.steps": TASK_STEPS, "train.threads": torch.get_num_threads()}
        api.finetune("classification", settings, out=runs / "sst2", console=QUIET)
    return runs / "sst2"


def top_tokens(model: api.LoadedModel, rows: list[np.ndarray[Any, Any]]) -> torch.Tensor:
    """The most probable next token at every position of every row."""
    head, tokens = vocabulary_head(model.model, "causal"), []
    for ids in rows:
        batch = torch.from_numpy(ids)[None]
        with torch.inference_mode():
            with forward_precision(model.model, batch.numel()):
                hidden = in_float32(model.model.backbone(tokens=batch, causal=True))
            tokens.append(head(hidden.last_hidden_state[0]).argmax(-1))
    return torch.cat(tokens)


def language_model_rows(models: dict[str, api.LoadedModel], text: Path, limit: int) -> list[list[str]]:
    """Per option: perplexity on both texts, the same top token, the difference of log-probabilities, embeddings."""
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if len(line) > 200][:limit]
    tokenizer, length = models["float32"].tokenizer, models["float32"].model.backbone.max_length
    ids = [row.astype(np.int64)[:length] for row in tokenizer.ids_each(lines)]
    top = {name: top_tokens(model, ids) for name, model in models.items()}
    logprobs = {name: np.concatenate(token_logprobs(model.model, tokenizer, ids)) for name, model in models.items()}
    vectors = {name: model.embed(lines) for name, model in models.items()}
    rows = []
    for name, model in models.items():
        perplexities = [
            model.evaluate(data=source, limit=limit)["metrics"]["perplexity"] for source in (text, BUILT_IN)
        ]
        difference = np.abs(logprobs[name] - logprobs["float32"])
        similarity = torch.cosine_similarity(vectors[name], vectors["float32"]).min()
        same_top = float((top[name] == top["float32"]).float().mean())
        quality = [f"{same_top:.3%}", f"{difference.mean():.4f}", f"{np.quantile(difference, 0.999):.3f}"]
        rows.append(
            [
                name,
                *(f"{value:,.2f}" for value in perplexities),
                *quality,
                f"{difference.max():.3f}",
                f"{similarity:.5f}",
            ]
        )
    return rows


def classifier_rows(models: dict[str, api.LoadedModel], data: Path, sentences: list[str]) -> list[list[str]]:
    """Per option: accuracy, the same labels, and the difference of the scores of labels."""
    rows, expected = [], models["float32"].predict(sentences)
    for name, model in models.items():
        accuracy = model.evaluate(data=data)["metrics"]["accuracy"]
        pairs = list(zip(model.predict(sentences), expected, strict=True))
        same = sum(first["label"] == second["label"] for first, second in pairs)
        differences = [abs(first["score"] - second["score"]) for first, second in pairs]
        margin = max(
            (abs(second["score"] - 0.5) for first, second in pairs if first["label"] != second["label"]), default=0
        )
        rows.append(
            [name, f"{accuracy:.4f}", f"{same:,} of {len(pairs):,}", f"{max(differences):.4f}", f"{margin:.4f}"]
        )
    return rows


def speed_rows(
    writers: dict[str, api.LoadedModel], classifiers: dict[str, api.LoadedModel], texts: list[str], **timing: Any
) -> list[list[str]]:
    """Per operation: how many times as fast as float32 each option is."""

    def generate(model: api.LoadedModel, prompts: int) -> object:
        return model.generate(texts[:prompts], greedy=True, max_tokens=64)

    operations: dict[str, tuple[dict[str, api.LoadedModel], Callable[[api.LoadedModel], object]]] = {
        "score 64 texts": (writers, lambda model: model.score(texts[:64])),
        "embed 64 texts": (writers, lambda model: model.embed(texts[:64])),
        "predict 256 texts": (classifiers, lambda model: model.predict(texts[:256])),
        "predict one text": (classifiers, lambda model: model.predict(texts[0])),
        "generate, 1 prompt": (writers, partial(generate, prompts=1)),
        "generate, 16 prompts": (writers, partial(generate, prompts=16)),
    }
    rows = []
    for name, (models, run) in operations.items():
        timings = alternate({key: partial(run, model) for key, model in models.items()}, **timing)
        cells = ["{:.2f}× ({:.2f}–{:.2f})".format(*ratio(timings, key, "float32")) for key in ("bfloat16", "int8")]
        rows.append([name, f"{timings['float32'].median * 1e3:,.0f} ms", *cells])
    return rows


def main() -> None:
    """Train what is missing, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    with tempfile.TemporaryDirectory() as temporary:
        runs = options.runs or Path(temporary)
        writers, classifiers = (
            {name: api.load(train(options.data, runs), **how) for name, how in OPTIONS.items()}
            for train in (train_language_model, train_classifier)
        )
        rows = (options.data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[-10_000:]
        sentences = [row.rsplit("\t", 1)[0].strip() for row in rows]
        texts = [sentence for sentence in sentences if len(sentence) > 40]
        held_out, dev = options.data / "wikitext-2" / "valid.txt", options.data / "sst2" / "dev.tsv"
        tables = [
            table(LANGUAGE_MODEL_HEADER, language_model_rows(writers, held_out, options.limit)),
            table(CLASSIFIER_HEADER, classifier_rows(classifiers, dev, sentences)),
            table(SPEED_HEADER, speed_rows(writers, classifiers, texts, repeats=options.repeats, clock=clock)),
        ]
    flag = " --processor-time" if options.processor_time else ""
    command = f"OMP_NUM_THREADS={torch.get_num_threads()} python -m benchmarks.inference_options DATA"
    parts = [
        "# Inference in bfloat16 and with int8 weights",
        "",
        f"`{command} --repeats {options.repeats}{flag}`: a GPT-2 of 4 layers × 256 after {GPT2_MINUTES} minutes on",
        f"WikiText-2, and a BERT of the same size after {TASK_STEPS} steps on SST-2. Differences are against",
        "float32; speeds are medians of paired ratios, with quartiles. Processor features:",
        f"{', '.join([*bfloat16_features(), *int8_features()]) or 'none'}; torch {torch.__version__}.",
    ]
    for title, cells in zip(("Language model", "Classifier", "Speed"), tables, strict=True):
        parts += ["", f"## {title}", "", cells]
    (RESULTS / "inference.md").write_text("\n".join([*parts, ""]), encoding="utf-8")
    print("\n".join(parts))


if __name__ == "__main__":
    main()
