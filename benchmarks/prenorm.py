"""Mini recipes as in the papers (post-norm) compared with their faster pre-norm variants, after the same CPU time.

    python -m benchmarks.prenorm [bert roberta electra xlnet bart] [--minutes 1] [--work /tmp/prenorm]

NAME-mini has the architecture of the paper and of the class in transformers, NAME-mini-prenorm has pre-norm (and rotary
positions). Both train on builtin:pydocs with one thread. Minutes are CPU time, so that a busy machine does not change
them: a few steps of both are timed, alternated, and each trains for as many as fit. A family's row in
docs/results/prenorm.md is replaced when it is done.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from rich.console import Console

import meristem
from benchmarks.side_by_side import RESULTS, table
from benchmarks.tasks_pretraining import quickest
from meristem.api import resolve_pretrain_recipe
from meristem.learning.build import build_feeds, build_learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.step import Stepper

PAGE, NUMBERS = RESULTS / "prenorm.md", RESULTS / "prenorm.json"
TERMS = {"bert": "mlm", "roberta": "loss", "electra": "generator", "xlnet": "loss", "bart": "loss"}
"""The loss term of each family that is compared."""
SHAPES = {"faithful": "{}-mini", "prenorm": "{}-mini-prenorm"}
WARM, TIMED = 2, 6
FEATURES = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16")


def settings() -> list[str]:
    """The overrides of every run."""
    return ["train.threads=1", f"train.precision={quickest()}", "train.save_every=10h", "train.evaluate_every=1000000"]


def seconds_per_step(family: str) -> dict[str, float]:
    """CPU seconds of one optimizer step of each variant: median of a few, alternated."""
    torch.set_num_threads(1)
    steppers, durations = {}, dict[str, list[float]]()
    for shape, name in SHAPES.items():
        recipe = resolve_pretrain_recipe(name.format(family), [*settings(), "train.steps=100"])
        data = load_pretraining_data(recipe, None, Console(stderr=True))
        learner = build_learner(recipe, data.tokenizer).train()
        feed = build_feeds(recipe, learner.objectives, data.tokenizer, data.datasets, split="train", seed=0)["main"]
        device = torch.device("cpu")
        optimizers = build_optimizers(learner.model, recipe.train)
        stepper = Stepper(learner=learner, optimizers=optimizers, settings=recipe.train, device=device)
        steppers[shape], durations[shape] = (stepper, feed), []
    for step in range(WARM + TIMED):
        for shape, (stepper, feed) in steppers.items():
            start = time.process_time()
            stepper.train_step(step, 100, "main", [feed.batch(step, 0)])
            durations[shape].append(time.process_time() - start)
    return {shape: statistics.median(durations_of_shape[WARM:]) for shape, durations_of_shape in durations.items()}


def measured(family: str, minutes: float, work: Path) -> dict[str, dict[str, float]]:
    """Both variants of a family: parameters, steps that fit, and the validation loss after them."""
    out = {}
    for shape, seconds in seconds_per_step(family).items():
        steps, name = max(10, round(minutes * 60 / seconds)), SHAPES[shape].format(family)
        run = work / f"{name}-{minutes:g}"
        result = meristem.pretrain(name, [*settings(), f"train.steps={steps}"], out=run, fresh=True)
        model = meristem.load(run).model
        out[shape] = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "seconds": seconds,
            "steps": steps,
            "loss": result.metrics[TERMS[family]],
        }
    return out


def page(numbers: dict[str, dict[str, dict[str, float]]], minutes: float) -> str:
    """The text of docs/results/prenorm.md."""
    rows = []
    for family, sides in numbers.items():
        for shape, numbers_of in sides.items():
            rows.append([SHAPES[shape].format(family),
                         f"{numbers_of['parameters'] / 1e6:.2f} M", f"{numbers_of['seconds']:.2f}",
                         f"{numbers_of['steps']:.0f}", TERMS[family], f"{numbers_of['loss']:.3f}"])  # fmt: skip
    capabilities = torch.cpu.get_capabilities()
    has = ", ".join(name for name in FEATURES if capabilities.get(name)) or "none of these"
    header = ["recipe", "parameters", "processor seconds per step", "steps", "term", "validation loss"]
    return f"""# Published architectures and their pre-norm variants

`python -m benchmarks.prenorm --minutes {minutes:g}`: each mini recipe in the architecture of its paper and its transformers class, beside the
same with pre-norm (and rotary positions; XLNet without segments), for {minutes:g} minute{"s" * (minutes != 1)} of processor time each on
builtin:pydocs: one thread, {quickest()}, seed 0. Lower is better; within a family both mask the same tokens.
Processor features: {has} (of {", ".join(FEATURES)}).

{table(header, rows)}

Families that are not in the table have not been measured.
"""  # noqa: E501  # a page's lines are as long as they are


def main() -> None:
    """Measure each family; earlier results are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(TERMS))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--work", type=Path, default=Path("runs/prenorm"))
    options = parser.parse_args()
    saved_numbers = json.loads(NUMBERS.read_text()) if NUMBERS.is_file() else {}
    numbers = saved_numbers["families"] if saved_numbers.get("minutes") == options.minutes else {}
    for family in options.families:
        numbers[family] = measured(family, options.minutes, options.work)
        in_order = {name: numbers[name] for name in TERMS if name in numbers}
        NUMBERS.write_text(json.dumps({"minutes": options.minutes, "families": in_order}, indent=1) + "\n")
        PAGE.write_text(page(in_order, options.minutes), encoding="utf-8")


if __name__ == "__main__":
    main()
