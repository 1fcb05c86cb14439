"""Differentially private training: the cost of a step, and quality at ε = ∞, 8, 3, 1.

python -m benchmarks.privacy cost [--repeats 5] [--only BERT,GPT-2]
python -m benchmarks.privacy curve --data ../shared/data [--seeds 3] [--only gpt2,sst2] [--cells N]
python -m benchmarks.privacy page

Every cell is an ordinary run with a JSON file in docs/results/trust; finished cells are not repeated, and `--cells N`
stops after N new ones. The page docs/results/privacy.md is written after each command from the cells that there are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import PretrainRecipe, resolve_recipe
from meristem.dataset.poisson_feed import PoissonFeed
from meristem.distributed.process_group import SINGLE_PROCESS
from meristem.inputs.batch import Batch
from meristem.learning.build import build_learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.privacy.private_step import PrivateStep
from meristem.training.step import Stepper

CELLS = RESULTS / "trust"
PAGE = RESULTS / "privacy.md"
LENGTH, UNITS = 128, 32
MINI = {"layers": 4, "hidden_size": 256, "heads": 4, "max_length": LENGTH}
COST_MODELS: dict[str, dict[str, Any]] = {
    "BERT": {"model": {"family": "bert", **MINI}, "objective": "mlm"},
    "GPT-2": {"model": {"family": "gpt2", **MINI}, "objective": "clm"},
}
EPSILONS = ("inf", "8", "3", "1")
CURVE_STEPS = 150
SST2_STEPS, SST2_BATCH = 100, 256


# ------------------------------------------------------------ cost of a step


def measure_cost(name: str, repeats: int) -> dict[str, float]:
    """Median processor seconds of a step, plain and private, on documents of 128 tokens, alternating."""
    common = {
        **COST_MODELS[name],
        "tokenizer": {"kind": "bpe" if name == "GPT-2" else "wordpiece", "vocab_size": 8192},
        "corpus": {"source": "builtin:pydocs"},
    }
    train = {"steps": 100, "batch_tokens": LENGTH * UNITS, "precision": "float32", "seed": 1}
    private = {"epsilon": 8, "noise_seed": 1}
    recipes = {
        "plain": resolve_recipe(name, {**common, "train": train}),
        "ghost": resolve_recipe(name, {**common, "train": {**train, "privacy": {**private, "gradients": "ghost"}}}),
        "per sample": resolve_recipe(
            name, {**common, "train": {**train, "privacy": {**private, "gradients": "per_sample"}}}
        ),
    }
    steppers: dict[str, tuple[Stepper, list[Batch]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for method, recipe in recipes.items():
            assert isinstance(recipe, PretrainRecipe)
            steppers[method] = _cost_stepper(recipe, Path(folder))
        # the private step reads UNITS full rows too: its first draws with full-length rows
        seconds: dict[str, list[float]] = {method: [] for method in steppers}
        for repeat in range(repeats + 1):
            for method, (stepper, batches) in steppers.items():
                start = time.process_time()  # of this process: other processes may run beside it
                stepper.train_step(repeat, 100, "main", batches)
                if repeat:  # the first is a warm-up
                    seconds[method].append(time.process_time() - start)
    return {method: statistics.median(times) for method, times in seconds.items()}


def _cost_stepper(recipe: PretrainRecipe, folder: Path) -> tuple[Stepper, list[Batch]]:
    data = load_pretraining_data(recipe, None, Console(quiet=True))
    learner = build_learner(recipe, data.tokenizer)
    ((_, feed),) = data.build_feeds(recipe, learner.objectives, split="train", seed=1).items()
    private = None
    if isinstance(feed, PoissonFeed) and recipe.train.privacy is not None:
        batches = [_full_rows(feed)]
        private = PrivateStep(
            learner=learner,
            settings=recipe.train.privacy,
            distributed=SINGLE_PROCESS,
            noise_seed=1,
            noise_multiplier=1.0,
            units_per_step={"main": UNITS},
            log=lambda text: None,
        )
    else:
        batches = [feed.batch_at(0, UNITS)]
    optimizers = build_optimizers(learner.model, recipe.train)
    stepper = Stepper(
        learner=learner.train(),
        optimizers=optimizers,
        settings=recipe.train,
        device=torch.device("cpu"),
        private=private,
    )
    return stepper, batches


def _full_rows(feed: PoissonFeed) -> Batch:
    """UNITS documents that fill a row, so that both steps read the same number of tokens."""
    rows = []
    for unit in range(len(feed.view)):
        unit_rows = feed.unit_rows(0, unit)
        if unit_rows and len(unit_rows[0].inputs["tokens"]) >= LENGTH - 1:
            rows.append(unit_rows)
        if len(rows) == UNITS:
            break
    return feed.collate_units(rows)


# ------------------------------------------------------------ quality at ε


def train_cell(kind: str, epsilon: str, seed: int, data: Path) -> dict[str, Any]:
    """Train one run; returns its metrics on test data, for SST-2 on its development data, which chose nothing."""
    privacy = {} if epsilon == "inf" else {"train.privacy.epsilon": float(epsilon), "train.privacy.noise_seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        run, quiet = Path(folder) / "run", Console(quiet=True)
        if kind == "gpt2":
            settings = {
                "model.layers": 2, "model.hidden_size": 64, "model.heads": 2, "model.max_length": 64,
                "tokenizer.kind": "bpe", "tokenizer.vocab_size": 512,
                "train.minutes": None, "train.steps": CURVE_STEPS, "train.batch_tokens": 64 * 64,
                "train.learning_rate": 2e-3, "train.optimizer": "adamw", "train.evaluate_every": CURVE_STEPS,
                "train.seed": seed, "train.precision": "float32", **privacy,
            }  # fmt: skip
            source = "builtin:microworld-en?size=4000"
            result = api.pretrain("gpt2-mini", settings, source=source, out=run, console=quiet)
        else:
            settings = {
                "from": "scratch", "task.pooling": "mean",
                "model.layers": 1, "model.hidden_size": 64, "model.heads": 2, "model.max_length": 48,
                "tokenizer.vocab_size": 2000,
                "data.train": str(data / "sst2" / "train.tsv"), "data.validation": str(data / "sst2" / "dev.tsv"),
                "train.epochs": None, "train.steps": SST2_STEPS, "train.batch_samples": SST2_BATCH,
                "train.learning_rate": 5e-3, "train.evaluate_every": SST2_STEPS, "train.seed": seed,
                "train.optimizer": "adamw", "train.precision": "float32", **privacy,
            }  # fmt: skip
            result = api.finetune("classification", settings, out=run, console=quiet)
        finished = json.loads(RunFolder(run).finished_path.read_text(encoding="utf-8"))
    return {"metrics": result.metrics, "test": result.test or result.metrics, "privacy": finished.get("privacy", {})}


def cell_path(kind: str, epsilon: str, seed: int) -> Path:
    """Where the result of a cell is kept."""
    return CELLS / f"privacy--{kind}--{epsilon}--{seed}.json"


MEASURES = {"gpt2": ("bits_per_byte", "bits per byte"), "sst2": ("accuracy", "accuracy")}


def run_curve(kinds: list[str], seeds: int, limit: int, data: Path) -> None:
    """Train the cells that are missing."""
    CELLS.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for epsilon in EPSILONS:
            for kind in kinds:
                path = cell_path(kind, epsilon, seed)
                if limit and not path.is_file():
                    limit -= 1
                    start = time.perf_counter()
                    path.write_text(
                        json.dumps(train_cell(kind, epsilon, seed, data), indent=1) + "\n", encoding="utf-8"
                    )
                    print(path.name, f"{time.perf_counter() - start:.0f} s", flush=True)


# ------------------------------------------------------------ page


def _curve_rows() -> list[list[str]]:
    rows = []
    for kind, (measure, label) in MEASURES.items():
        for epsilon in EPSILONS:
            cells = [
                json.loads(path.read_text(encoding="utf-8"))
                for path in sorted(CELLS.glob(f"privacy--{kind}--{epsilon}--*.json"))
            ]
            if not cells:
                continue
            values = [cell["test"][measure] for cell in cells]
            noise = [cell["privacy"]["noise_multiplier"] for cell in cells if cell["privacy"]]
            spread = f"{min(values):.3f}–{max(values):.3f}"
            rows.append(
                [kind, label, "∞" if epsilon == "inf" else epsilon, f"{noise[0]:.3f}" if noise else "–",
                 str(len(values)), f"{statistics.mean(values):.3f}", spread]
            )  # fmt: skip
    return rows


def _cost_rows() -> list[list[str]]:
    rows = []
    for path in sorted(CELLS.glob("privacy-cost--*.json")):
        cost = json.loads(path.read_text(encoding="utf-8"))
        plain = cost["seconds"]["plain"]
        for method, seconds in cost["seconds"].items():
            rows.append([cost["model"], method, f"{seconds * 1000:.0f} ms", f"{seconds / plain:.2f}×"])
    return rows


def write_page() -> None:
    """Write docs/results/privacy.md from the cells that there are."""
    lines = ["# Differentially private training", ""]
    if cost_rows := _cost_rows():
        lines += [
            f"`python -m benchmarks.privacy cost`: median processor time of a step on {UNITS} rows of {LENGTH} tokens",
            "(4 layers × 256, vocabulary of at most 8,192, float32, one thread), plain and private, in turns.",
            "",
            *table(["model", "gradients", "step", "of the plain one"], cost_rows).splitlines(),
            "",
        ]
    if curve_rows := _curve_rows():
        lines += [
            "`python -m benchmarks.privacy curve --data ../shared/data`: tiny models from scratch, δ = 1e-5, clip 1.",
            f"gpt2: 2 layers × 64 on 4,000 built-in stories, {CURVE_STEPS} steps of 64 stories in the mean, test data.",
            f"sst2: 1 layer × 64, mean pooling, SST-2's 67,349 samples, {SST2_STEPS} steps of {SST2_BATCH} in the",
            "mean, measured on its development data, which chose nothing. What a budget costs falls with the",
            "number of documents: the stories are few. Without privacy (ε = ∞) stories are packed, so that a step",
            "reads more of them. An accuracy of 0.509 on SST-2 is that of always giving the more frequent label.",
            "",
            *table(["run", "measure", "ε", "noise multiplier", "seeds", "mean", "range"], curve_rows).splitlines(),
            "",
        ]
    missing = [part for part, rows in (("cost", cost_rows), ("curve", curve_rows)) if not rows]
    lines += [f"Not measured yet: `python -m benchmarks.privacy {part}`." for part in missing]
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cost", "curve", "page"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with sst2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="models of the cost, runs of the curve, separated by commas")
    parser.add_argument("--cells", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.part == "cost":
        CELLS.mkdir(parents=True, exist_ok=True)
        for name in arguments.only.split(",") if arguments.only else COST_MODELS:
            cost = {"model": name, "seconds": measure_cost(name, arguments.repeats), "threads": torch.get_num_threads()}
            (CELLS / f"privacy-cost--{name}.json").write_text(json.dumps(cost, indent=1) + "\n", encoding="utf-8")
            print(cost, flush=True)
    elif arguments.part == "curve":
        run_curve(
            arguments.only.split(",") if arguments.only else list(MEASURES),
            arguments.seeds,
            arguments.cells,
            arguments.data,
        )
    write_page()


if __name__ == "__main__":
    main()
