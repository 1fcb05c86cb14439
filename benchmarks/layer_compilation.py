"""torch.compile of the backbone's layers: steps with and without it, compile time, and the run that repays it.

python -m benchmarks.layer_compilation [RECIPE …] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path

import torch

from benchmarks.side_by_side import table
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.config.recipe import PretrainRecipe, read_recipe, resolve_recipe
from meristem.describe.describe_recipe import build_trial
from meristem.training.layer_compilation import REPAYMENT, CompileTimings, measure_compilation
from meristem.training.precision import choose_precision
from meristem.training.step_planning import step_batches

RECIPES = ("gpt2-mini", "bert-mini-prenorm", "t5-mini")
CPU = torch.device("cpu")


def measure(name: str) -> tuple[str, CompileTimings]:
    """Precision and timings of a built-in recipe on placeholder text."""
    recipe = resolve_recipe(*read_recipe(name))
    assert isinstance(recipe, PretrainRecipe)
    with tempfile.TemporaryDirectory() as folder:
        learner, feeds = build_trial(recipe, recipe.tokenizer.vocab_size, Path(folder))
        source, feed = next(iter(feeds.items()))
        precision = choose_precision(recipe, CPU, learner.model.backbone)
        batches = partial(step_batches, feed)
        torch.compiler.reset()  # what this process has compiled before
        return precision, measure_compilation(learner, source, batches, recipe.train, precision)


def row(name: str, repeats: int) -> list[str]:
    """One row of the table; the first repeat compiles, the others find what it left in the cache."""
    measured = [measure(name) for _ in range(repeats)]
    timings = [item for _, item in measured]
    gains = [item.gain for item in timings]
    gain, compiling = statistics.median(gains), timings[0].compiling
    repaid = f"{REPAYMENT * compiling / (1 - 1 / gain) / 60:.0f} min" if gain > 1 else "never"
    cached = f"{timings[-1].compiling:.0f} s" if repeats > 1 else "–"
    eager, compiled = (statistics.median(getattr(item, key) for item in timings) for key in ("eager", "compiled"))
    spread = f"{gain:.2f}× ({min(gains):.2f}–{max(gains):.2f})"
    return [name, measured[0][0], f"{eager:.3f}", f"{compiled:.3f}", spread, f"{compiling:.0f} s", cached, repaid]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    features = ", ".join(bfloat16_features()) or "no bfloat16 units"
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # the first repeat finds nothing
        rows = [row(name, options.repeats) for name in options.recipes]
    print(f"{torch.get_num_threads()} threads, {features}, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}\n")
    header = ["recipe", "precision", "s per step", "compiled", "gain", "compiling", "from the cache", "repaid after"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
