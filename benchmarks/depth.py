"""Pre-norm and post-norm GPT-2 with 48 layers of width 64: training losses and gradient norms by depth.

    python -m benchmarks.depth ../shared/data/wikitext-2/train.txt [--steps 200]

Both have the same learning rate, warm-up, text and initial weights; results are written to docs/results/depth.md
and docs/pictures/depth.png.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem.api import resolve_pretrain_recipe
from meristem.learning.build import build_feeds, build_learner
from meristem.learning.learner import Learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.step import Stepper

PAGE = RESULTS / "depth.md"
PICTURE = RESULTS.parent / "pictures" / "depth.png"
LOOK = (0, 20, 199)
MODEL = ["model.layers=48", "model.hidden_size=64", "model.heads=4", "model.max_length=128"]
TRAIN = ["train.batch_tokens=1024", "train.optimizer=adamw", "train.learning_rate=1e-3", "train.warmup=20"]


@dataclass
class Trained:
    """One run: its losses, and at some steps the gradient norm of every layer."""

    losses: list[float] = field(default_factory=list)
    norms: dict[int, list[float]] = field(default_factory=dict)


def by_layer(learner: Learner) -> list[float]:
    """The gradient norm of each layer's weights."""
    layers = learner.model.backbone.stack.layers  # type: ignore[union-attr]  # GPT-2 has one
    return [
        float(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in layer.parameters() if p.grad is not None])))
        for layer in layers  # type: ignore[union-attr]  # a ModuleList
    ]


def train(norm_position: str, text: Path, steps: int) -> Trained:
    """Train with layer norms before or after each sub-layer."""
    settings = [*MODEL, *TRAIN, f"train.steps={steps}", f"model.norm_position={norm_position}", f"corpus.source={text}"]
    recipe = resolve_pretrain_recipe("gpt2-mini", settings)
    data = load_pretraining_data(recipe, None, Console(stderr=True))
    learner = build_learner(recipe, data.tokenizer).train()
    feed = build_feeds(recipe, learner.objectives, data.tokenizer, data.datasets, split="train", seed=0)["main"]
    stepper = Stepper(
        learner=learner,
        optimizers=build_optimizers(learner.model, recipe.train),
        settings=recipe.train,
        device=torch.device("cpu"),
    )
    trained = Trained()
    for step in range(steps):
        batch = feed.batch(step, 0)
        if step in LOOK or step == steps - 1:
            outcome = learner("main", batch, batch.target_counts)
            outcome.loss.backward()
            trained.norms[step] = by_layer(learner)
            learner.zero_grad(set_to_none=True)
        trained.losses.append(float(stepper.train_step(step, steps, "main", [batch]).loss))
    return trained


def page(rows: str, steps: int) -> str:
    """The text of docs/results/depth.md."""
    return f"""# Pre-norm and post-norm with 48 layers

`python -m benchmarks.depth ../shared/data/wikitext-2/train.txt`: GPT-2 with hidden size 64 and 48 layers, {steps}
steps of 1,024 tokens of WikiText-2, AdamW at 1e-3 after 20 steps of warm-up, with the same initial weights and
text.

{rows}

![Loss, and gradient norm by depth](../pictures/depth.png)
"""


def draw(sides: dict[str, Trained]) -> None:
    """Losses on the left, gradient norms by depth on the right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8))
    for (name, trained), colour in zip(sides.items(), ("#22313f", "#c0392b"), strict=True):
        left.plot(trained.losses, color=colour, label=f"{name}-norm")
        for (step, norms), style in zip(trained.norms.items(), ("-", "--", ":"), strict=False):
            right.plot(range(1, len(norms) + 1), norms, style, color=colour, label=f"{name}-norm, step {step}")
    left.set(xlabel="step", ylabel="training loss")
    right.set(xlabel="layer", ylabel="gradient norm", yscale="log")
    for axis in (left, right):
        axis.legend(fontsize=7, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """Train both, write the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    sides = {position: train(position, options.text, options.steps) for position in ("pre", "post")}
    rows = []
    for name, trained in sides.items():
        last = trained.norms[options.steps - 1]
        mean = sum(trained.losses[-20:]) / 20
        rows.append(
            [
                f"{name}-norm",
                f"{trained.losses[0]:.2f}",
                f"{mean:.2f}",
                f"{max(trained.losses[20:]):.2f}",
                f"{last[0]:.1e}",
                f"{last[-1]:.1e}",
            ]
        )
    head = ["48 layers", "first loss", "last 20", "highest after 20", "gradient of layer 1", "of layer 48"]
    print(table(head, rows))
    PAGE.write_text(page(table(head, rows), options.steps), encoding="utf-8")
    draw(sides)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
