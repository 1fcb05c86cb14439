"""Every model family trained for minutes on real text: learning curves, and losses compared with the unigram level.

    python -m benchmarks.family ../shared/data [--minutes 4] [--only NAME …] [--seeds 3] [--work FOLDER]

WikiText-2 is read article by article, Multi30k for translation, and the microworld's pictures for captions. A run is
a run folder in --work: an interrupted one is resumed, and a finished one is not run again. Results are written to
docs/results/family.json, family.md and docs/pictures/family.png.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.config.errors import MeristemError
from meristem.dataset.prepare import cache_dir
from meristem.dataset.token_dataset import TokenDataset
from meristem.drawing.training_curves import read_metrics

OUT, PAGE = RESULTS / "family.json", RESULTS / "family.md"
PICTURE = RESULTS.parent / "pictures" / "family.png"
HELD_OUT = ["corpus.validation=0.01", "corpus.test=0.0"]
SHORT = ["model.max_length=32", "model.layers=3", "model.hidden_size=128", "tokenizer.vocab_size=512",
         "train.batch_tokens=2048",
         "dataset.contiguous_batches=true"]  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One row of the table: a recipe, its overrides, and its training data."""

    name: str
    recipe: str
    text: str = "articles"
    changes: tuple[str, ...] = ()
    seeds: int = 1
    budget: str = "minutes"
    """`minutes`, or a setting such as train.tokens=1000000 for runs that must see the same text."""
    judged: tuple[str, ...] = ("loss",)
    """The loss terms that are compared with the unigram level."""


MEMORY = "train.tokens=2000000"
PLANS = [
    Plan("bert", "bert-mini-prenorm", judged=("mlm",)),
    Plan("roberta", "roberta-mini-prenorm"),
    Plan("gpt", "gpt-mini"),
    Plan("gpt2", "gpt2-mini"),
    Plan("modern", "modern-mini"),
    Plan("transformer-xl", "transformer-xl-mini"),
    Plan("elmo", "elmo-mini", judged=("forward", "backward")),
    Plan("electra", "electra-mini-prenorm", seeds=3, judged=("generator",)),
    Plan("xlnet", "xlnet-mini-prenorm"),
    Plan("bart (denoising)", "bart-mini-prenorm"),
    Plan("t5 (spans)", "t5-mini"),
    Plan("transformer (translation)", "transformer-mini", "translation"),
    Plan("rnn (translation)", "rnn-mini", "translation"),
    Plan("captioner", "captioner-mini", "pictures", seeds=3),
    Plan("xl, memory 128", "transformer-xl-mini", changes=(*SHORT, "model.memory_length=128"), seeds=3, budget=MEMORY),
    Plan("xl, no memory", "transformer-xl-mini", changes=(*SHORT, "model.memory_length=0"), seeds=3, budget=MEMORY),
]


def articles(data: Path, work: Path) -> Path:
    """WikiText-2's training articles, one JSON line each; a first-level heading starts an article."""
    out = work / "articles.jsonl"
    if out.is_file():
        return out
    articles: list[list[str]] = []
    for line in (data / "wikitext-2" / "train.txt").read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("= ") and not text.startswith("= ="):
            articles.append([])
        if articles and text:
            articles[-1].append(text)
    out.write_text("".join(json.dumps({"text": "\n".join(lines)}) + "\n" for lines in articles), encoding="utf-8")
    return out


def source(plan: Plan, data: Path, work: Path) -> list[str]:
    """The settings of the training data."""
    match plan.text:
        case "translation":
            pairs = data / "multi30k"
            return [f"corpus.source={pairs / 'train.en'}", f"corpus.target={pairs / 'train.de'}", *HELD_OUT]
        case "pictures":
            return ["corpus.source=builtin:microworld-pictures?size=20000"]
    return [f"corpus.source={articles(data, work)}", *HELD_OUT]


def level(run: Path) -> float:
    """Unigram level: cross-entropy of the validation tokens under the token frequencies of the training data."""
    (key,) = json.loads((run / "data.json").read_text()).values()
    store = TokenDataset.open(cache_dir() / "stores" / key, verify=False)
    train, held_out_stream = (store.split(split) for split in ("train", "validation"))
    counts = np.bincount(train.tokens(0, len(train)))
    token_ids = held_out_stream.tokens(0, len(held_out_stream))
    counts = np.pad(counts, (0, max(0, int(token_ids.max()) + 1 - len(counts)))) + 1.0
    return float(-np.log(counts[token_ids] / counts.sum()).mean())


def run(plan: Plan, seed: int, data: Path, work: Path, minutes: float) -> dict[str, Any]:
    """Train or resume a run, and return its results."""
    budget = f"train.minutes={minutes:g}" if plan.budget == "minutes" else plan.budget
    out = work / f"{plan.name.replace(' ', '-').replace(',', '').strip('()')}-{seed}"
    settings = [*source(plan, data, work), *plan.changes, budget, f"train.seed={seed}"]
    result_of_run = api.pretrain(plan.recipe, settings, out=out, console=Console(stderr=True))
    lines = read_metrics(out / "metrics.jsonl")
    total = max(line["step"] for line in lines)
    curve = [(line["step"] / total, line["loss"]) for line in lines if line["kind"] == "evaluation"]
    result = {"metrics": result_of_run.metrics, "used": result_of_run.used, "curve": curve, "level": level(out)}
    result["threads"] = torch.get_num_threads()
    if plan.text == "pictures":
        result["named"] = named(out)
    return result


def named(run: Path, pictures: int = 200) -> float:
    """Share of colours, shapes and relations named correctly in captions of unseen images."""
    from meristem.samples import microworld

    model = api.load(run)
    scenes = [microworld.generate_scene(1, number) for number in range(pictures)]  # not the seed of the training data
    completions = model.generate([microworld.draw(scene, 32) for scene in scenes], greedy=True, max_tokens=60)
    return statistics.mean(
        microworld.score_caption(texts[0].text, scene) for texts, scene in zip(completions, scenes, strict=True)
    )


def row(name: str, plan: Plan, runs: list[dict[str, Any]]) -> list[str]:
    """The table row of one family: validation loss, unigram level, further metrics."""
    losses = [statistics.mean(run["metrics"][term] for term in plan.judged) for run in runs]
    spread = f" ({min(losses):.3f}–{max(losses):.3f})" if len(losses) > 1 else ""
    extra = []
    if "rtd.auc" in runs[0]["metrics"]:
        extra.append("AUC " + " ".join(f"{run['metrics']['rtd.auc']:.3f}" for run in runs))
    if "named" in runs[0]:
        extra.append("named right " + " ".join(f"{run['named']:.1%}" for run in runs))
    steps = " ".join(f"{run['used']['steps']:.0f}" for run in runs)
    return [
        name,
        plan.recipe,
        steps,
        "/".join(map(str, sorted({run["threads"] for run in runs}))),
        f"{runs[0]['level']:.3f}",
        f"{statistics.mean(losses):.3f}{spread}",
        "; ".join(extra),
    ]


def memory_gain(results: dict[str, list[dict[str, Any]]]) -> str:
    """Reduction of perplexity by segment memory, for each seed."""
    pairs = zip(results.get("xl, memory 128", []), results.get("xl, no memory", []), strict=False)
    gains = [1 - math.exp(a["metrics"]["loss"] - b["metrics"]["loss"]) for a, b in pairs]
    return (
        ""
        if not gains
        else "Memory lowers perplexity by " + ", ".join(f"{gain:.1%}" for gain in gains) + " (each seed)."
    )


def summary(results: dict[str, list[dict[str, Any]]]) -> str:
    """The table of all finished runs."""
    plans = {plan.name: plan for plan in PLANS}
    rows = [row(name, plans[name], runs) for name, runs in results.items() if name in plans and runs]
    head = ["family", "recipe", "steps", "threads", "unigram", "validation loss", "more"]
    return table(head, rows) + "\n\n" + memory_gain(results)


def page(results: dict[str, list[dict[str, Any]]], minutes: float) -> str:
    """The text of docs/results/family.md, all from the runs."""
    return f"""# All model families on real text

`python -m benchmarks.family ../shared/data`: the built-in recipes, {minutes:g} minutes of training each on the
given number of threads of a shared machine. Data: WikiText-2's training articles (1 % of them held out for
validation), Multi30k English to German for translation, microworld images for captions. "Unigram" is the
cross-entropy of the validation tokens under the unigram distribution of the training tokens, a baseline without any
context. Losses are in nats per predicted token; with several seeds, mean and range. One seed shows that a family
learns, not which family is better: they predict different things.

{summary(results)}

![Validation loss over each run](../pictures/family.png)

The two rows `xl` are one model (3 layers × 128, BPE of 512) that reads the same text in the same order in
segments of 32 tokens, once with a memory of 128 states and once without. "Named right" is the share of correct colours,
shapes and relations in greedy captions of 200 images generated from another seed. ELECTRA's AUC is that of its
discriminator over all tokens.
"""


def draw(results: dict[str, list[dict[str, Any]]]) -> None:
    """Plot every family's validation loss over its run, relative to its first value."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 4
    finished_runs = [(name, runs) for name, runs in results.items() if runs]
    figure, axes = pyplot.subplots(
        -(-len(finished_runs) // columns), columns, figsize=(12, 2.4 * -(-len(finished_runs) // columns))
    )
    for axis, (name, runs) in zip(axes.flat, finished_runs, strict=False):
        for run in runs:
            axis.plot(*zip(*run["curve"], strict=True), color="#22313f", linewidth=1.2)
        axis.set_title(name, fontsize=9, color="#22313f")
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(finished_runs) :]:
        axis.set_visible(False)
    figure.supxlabel("share of the run", fontsize=9)
    figure.supylabel("validation loss", fontsize=9)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """Run what is missing and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seeds", type=int, default=3, help="maximum number of seeds for rows with several")
    parser.add_argument("--work", type=Path, default=Path("runs/family"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[dict[str, Any]]] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for plan in PLANS:
        if options.only and plan.name not in options.only:
            continue
        runs = results.setdefault(plan.name, [])
        for seed in range(len(runs), min(plan.seeds, options.seeds)):
            print(plan.name, seed, flush=True)
            try:
                runs.append(run(plan, seed, options.data, options.work, options.minutes))
            except MeristemError as error:
                print(f"{plan.name}: {error}", flush=True)
                break
            OUT.write_text(json.dumps(results, indent=1))
    print(summary(results))
    PAGE.write_text(page(results, options.minutes), encoding="utf-8")
    draw(results)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
