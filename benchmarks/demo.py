"""What `make demo` runs: a small BERT on built-in text, judged on text it never saw, and three sentences filled in.

python -m benchmarks.demo [--minutes 2.5] [--out runs/demo]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.console import Console

import meristem
from meristem.api import recipe_for
from meristem.checkpoint.run import Run
from meristem.training.shards import gather

SENTENCES = (
    "Return the [MASK] of the given array.",
    "This method is called when the [MASK] is closed.",
    "If the file does not [MASK], an error is raised.",
)


def commonest_share(out: Path) -> float:
    """How often always guessing the commonest token of the training text would be right on the test text."""
    recipe = recipe_for("bert-mini-prenorm", ["objective=mlm"])
    material = gather(recipe, Run.open(out), Console(quiet=True))
    store = material.stores["main"]
    train, test = store.split("train"), store.split("test")
    counts = np.bincount(train.tokens(0, len(train)), minlength=material.tokenizer.size)
    counts[material.tokenizer.specials] = 0
    held = test.tokens(0, len(test))
    return float((held == counts.argmax()).sum() / (~material.tokenizer.specials[held]).sum())


def main() -> None:
    """Train, judge, fill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    began = time.monotonic()
    console = Console()
    ended = meristem.pretrain(
        "bert-mini-prenorm", {"objective": "mlm", "train.minutes": options.minutes}, out=options.out, console=console
    )
    guess, right = commonest_share(options.out), ended.test["mlm.top1"]
    console.print(
        f"\nOn text it never saw it finds {right:.1%} of hidden words; always guessing the commonest token finds "
        f"{guess:.1%} ({right / guess:.1f} times as many)\n",
        highlight=False,
    )
    model = meristem.load(options.out)
    for sentence in SENTENCES:
        best = model.fill(sentence, top=3)[0].candidates
        console.print(
            f"{sentence}\n    " + ", ".join(f"{c.token} {c.probability:.0%}" for c in best),
            highlight=False,
            markup=False,
        )
    console.print(
        f"\nAll of it took {time.monotonic() - began:.0f} s. Your own text:  meristem pretrain bert-mini my-texts/",
        highlight=False,
    )


if __name__ == "__main__":
    main()
