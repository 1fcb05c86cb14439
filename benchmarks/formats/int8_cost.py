"""What 8-bit weights cost: perplexity of a trained GPT-2 in each consumer, in float32 and rounded, on unseen text."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import meristem
from benchmarks.formats.ctranslate2_consumer import export_vocabulary
from benchmarks.formats.gguf_consumer import open_gguf
from benchmarks.formats.onnx_consumer import causal_graph_logits, open_graph
from benchmarks.formats.our_outputs import Floats, causal_logits
from meristem import samples
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.interop.ctranslate2_export import export_ctranslate2
from meristem.interop.gguf_files.gguf_export import GGUF_FILE, export_gguf
from meristem.interop.onnx_export import export_onnx

SEEDS = (1, 2, 3)
STEPS = 400
SETTINGS = (
    "model.layers=3", "model.hidden_size=128", "model.heads=4", "model.max_length=64", "tokenizer.vocab_size=1024",
    "train.batch_tokens=2048", "train.threads=1", "corpus.processes=1", "train.precision=float32",
)  # fmt: skip
TEST_ONE_IN = 20
"""Every such document of `builtin:pydocs` is not trained on."""
WINDOWS, LENGTH = 64, 64
CONSUMERS = ("llama.cpp", "ctranslate2", "onnxruntime")
Logits = Callable[[Sequence[int]], Floats]


def perplexity(logits: Logits, windows: Sequence[Sequence[int]]) -> float:
    """exp of the mean negative log-likelihood of every token after the first of each window."""
    total = count = 0.0
    for ids in windows:
        scores = logits(ids[:-1])
        scores = scores - scores.max(-1, keepdims=True)
        log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        total -= float(log_probs[np.arange(len(ids) - 1), list(ids[1:])].sum())
        count += len(ids) - 1
    return math.exp(total / count)


def measure_seed(seed: int, cell: Path, runs: Path) -> dict[str, float]:
    """Perplexities of one trained model, from the cell's file if it was measured before."""
    if cell.is_file():
        stored: dict[str, float] = json.loads(cell.read_text())
        return stored
    loaded = load_run(train_run(seed, runs / f"seed-{seed}"))
    windows = _windows(loaded, test_documents())
    values = {"meristem": perplexity(lambda ids: causal_logits(loaded, ids), windows)}
    with tempfile.TemporaryDirectory() as folder:
        for int8 in (False, True):
            for consumer in CONSUMERS:
                values[f"{consumer}{' int8' * int8}"] = _measure(
                    consumer, loaded.run.path, Path(folder), windows, int8=int8
                )
    cell.parent.mkdir(parents=True, exist_ok=True)
    cell.write_text(json.dumps(values, indent=1) + "\n")
    return values


def test_documents() -> list[str]:
    """The documents that are not trained on."""
    return list(samples.documents("pydocs"))[::TEST_ONE_IN]


def train_run(seed: int, run: Path) -> Path:
    """Train on the other documents; a training that was stopped goes on."""
    texts = [text for number, text in enumerate(samples.documents("pydocs")) if number % TEST_ONE_IN]
    overrides = [*SETTINGS, f"train.steps={STEPS}", f"train.seed={seed}"]
    return meristem.pretrain("gpt2-mini", overrides, source=texts, out=run).run


def _windows(run: LoadedRun, documents: Sequence[str]) -> list[list[int]]:
    """Equal windows spread evenly over the documents that were not trained on."""
    ids = run.tokenizer.encode("\n\n".join(documents)).ids.tolist()
    stride = (len(ids) - LENGTH) // (WINDOWS - 1)
    return [ids[number * stride : number * stride + LENGTH] for number in range(WINDOWS)]


def _measure(consumer: str, run: Path, folder: Path, windows: Sequence[Sequence[int]], *, int8: bool) -> float:
    out = folder / f"{consumer}-{int8}"
    if consumer == "llama.cpp":
        export_gguf(run, out, int8=int8)
        with open_gguf(out / GGUF_FILE, embeddings=False) as model:
            return perplexity(model.logits, windows)
    if consumer == "onnxruntime":
        export_onnx(run, out, int8=int8)
        session = open_graph(out / "model.onnx")
        return perplexity(lambda ids: causal_graph_logits(session, ids), windows)
    import ctranslate2

    export_ctranslate2(run, out, int8=int8)
    generator, tokens = ctranslate2.Generator(str(out), intra_threads=1), export_vocabulary(out)
    return perplexity(
        lambda ids: np.asarray(generator.forward_batch([[tokens[number] for number in ids]]), np.float64)[0], windows
    )


def cost_table(cells: Sequence[dict[str, float]]) -> str:
    """Perplexity in float32, and its relative change with 8-bit weights: mean and range over the seeds."""
    lines = [
        f"| consumer | perplexity, float32 | with 8-bit weights | change, mean of {len(cells)} seeds | range |",
        "| --- | --- | --- | --- | --- |",
    ]
    for consumer in CONSUMERS:
        plain, rounded = ([cell[consumer + suffix] for cell in cells] for suffix in ("", " int8"))
        changes = [100 * (after / before - 1) for before, after in zip(plain, rounded, strict=True)]
        lines.append(
            f"| {consumer} | {np.mean(plain):.2f} | {np.mean(rounded):.2f} | {np.mean(changes):+.2f} % | "
            f"{min(changes):+.2f} to {max(changes):+.2f} % |"
        )
    ours = float(np.mean([cell["meristem"] for cell in cells]))
    return "\n".join([*lines, "", f"Meristem itself: {ours:.2f}."])
