"""What pretraining is worth: every task on real data, begun from a pretrained run and from nothing, three seeds each.

    python -m benchmarks.tasks ../shared/data [--only ROW …] [--seeds 3] [--work FOLDER]

Runs are folders in --work and go on where they stopped; each cell's numbers are a file in docs/results/tasks, and a
cell that is there is not run again, so that the whole can take several days. docs/results/tasks.md is made of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import tasks_limits as limits
from benchmarks.side_by_side import RESULTS, table
from benchmarks.tasks_before import BEFORE, pretrained, pretrainings
from benchmarks.tasks_rows import PAIRS, ROWS, Row, Start
from meristem import api
from meristem.errors import MeristemError
from meristem.training.signals import Stopped

CELLS, PAGE = RESULTS / "tasks", RESULTS / "tasks.md"


def measure(row: Row, start: Start, seed: int, options: argparse.Namespace) -> None:
    """One cell: fine-tune, or go on, and keep its numbers."""
    file = CELLS / f"{_plain(row.name)}--{_plain(start.name)}--{seed}.json"
    if file.is_file():
        return
    before = start.before or row.before
    run = [] if before is None else [f"from={pretrained(before, options.data, options.work)}"]
    print(row.name, "|", start.name, "|", seed, flush=True)
    began = time.monotonic()
    more = [one.replace("{data}", str(options.data)) for one in start.settings]
    settings = [*row.data(options.data, options.work), *row.settings, *run, *more]
    settings += [f"train.seed={seed}", f"data.seed={seed}"]
    out = options.work / file.stem
    ended = api.finetune(row.task, settings, out=out, console=Console(stderr=True))
    minutes = (time.monotonic() - began) / 60
    kept = {"row": row.name, "start": start.name, "seed": seed, "minutes": round(minutes, 2), "used": ended.used}
    file.write_text(json.dumps({**kept, "validation": ended.metrics, "test": ended.test}, indent=1))


def minimal_pairs(name: str, run: Path, data: Path) -> None:
    """BLiMP without training."""
    file = CELLS / f"{_plain(name)}--pretrained--0.json"
    if file.is_file():
        return
    print(name, flush=True)
    began = time.monotonic()
    found = api.load(run).evaluate(pairs=str(data / "blimp" / "BLiMP.zip"), limit=200)
    phenomena = [one["accuracy"] for one in found["pairs"]["paradigms"].values()]
    numbers = {"accuracy": statistics.mean(phenomena), "phenomena": len(phenomena), "pairs": found["samples"]["pairs"]}
    kept = {"row": name, "start": "pretrained", "seed": 0, "minutes": round((time.monotonic() - began) / 60, 2)}
    file.write_text(json.dumps({**kept, "validation": {}, "test": numbers}, indent=1))


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")


# ---------------------------------------------------------------- what is written


def page(data: Path) -> str:
    """docs/results/tasks.md: everything on it comes from the cells."""
    found = [json.loads(path.read_text()) for path in sorted(CELLS.glob("*.json"))]
    rows = [line for row in ROWS for line in _lines(row, [one for one in found if one["row"] == row.name], data)]
    for name in PAIRS:
        for one in found:
            if one["row"] == name:
                told = f"{one['test']['accuracy']:.1%}"
                rows.append(
                    [name, "pretrained, no training", "accuracy", told, "1", "50.0%", "≥ 57 %", f"{one['minutes']:.1f}"]
                )
    head = ["task", "start", "metric", "mean (lowest–highest)", "seeds", "trivial", "reach", "minutes a run"]
    layers = [line for row in ROWS if row.task == "probe" for line in _layers(row, found)]
    return f"""# What pretraining is worth

`python -m benchmarks.tasks ../shared/data`: one pretraining each of a mini encoder, a mini causal model and a mini
encoder-decoder on english_novels and wikitext-2 (ELMo too; the Chinese encoder on Weibo's sentences and Tang poems):

{table(["pretraining", "recipe", "steps", "tokens read", "minutes", "test loss", "precision"], pretrainings())}

Minutes are of one core of two, whose other one trained something else meanwhile, and count pauses in which something
else was measured. Then each task from those weights and from nothing (the same shape and tokenizer), in as many epochs,
with three seeds, which also choose the examples where only some are used. Pretrained starts learn at 1e-3 (2e-3 with
500 examples), others at 5e-4: from about ten trials of the pretrained and seven of the scratch start on SST-2's test
data, mostly one seed each. On STS-B's development data three or four rates of either start were tried with one seed:
the pretrained one is best at 1e-3, scratch at 2e-5, where words that began apart at random stay so, and sentences are
alike as far as they share them. The other rows took the rates over untried, so their scratch lines are not the best
possible. Epochs were cut to what the time allowed; Multi30k has eight minutes of one core.
SST-2, STS-B and COPA are measured on validation data, by which the best epoch was chosen too; everything else on test
data. `trivial` is the commonest label, the usual tag of each word, the passage's first words, the shared words, the
copied source, the first sentence.

{table(head, rows)}

{limits.script(data)}

{chr(10).join([*layers, *_limits()])}
Each cell is a file in docs/results/tasks.
"""


def _lines(row: Row, found: Sequence[dict[str, Any]], data: Path) -> list[list[str]]:
    lines = []
    base = row.trivial(data) if row.trivial and found else {}
    for start in dict.fromkeys(one["start"] for one in found):
        some = [one for one in found if one["start"] == start]
        for metric in (row.metric, *row.beside):
            values = [one[row.split][metric] for one in some]
            spread = f" ({min(values):.3f}–{max(values):.3f})" if len(values) > 1 else ""
            plain = base.get(row.name, base.get(metric))
            lines.append([
                row.name, start, metric, f"{statistics.mean(values):.3f}{spread}", str(len(values)),
                "–" if plain is None else f"{plain:.3f}", row.reach,
                f"{statistics.median(one['minutes'] for one in some):.1f}",
            ])  # fmt: skip
    return lines


def _layers(row: Row, found: Sequence[dict[str, Any]]) -> list[str]:
    some = [one["test"] for one in found if one["row"] == row.name]
    names = sorted({name for one in some for name in one if name.startswith("layer_")})
    if not names:
        return []
    means = [[name, f"{statistics.mean(one[name] for one in some):.3f}"] for name in names]
    return [f"## {row.name}", "", table(["layer", "mean over seeds"], means), ""]


def _limits() -> list[str]:
    found = limits.rows()
    if not found:
        return []
    told = "`python -m benchmarks.tasks_limits ../shared/data`: accuracy on development data, three draws."
    head = ["logistic regression on", "accuracy"]
    return ["## What 500 sentences of SST-2 tell a model that only counts", "", told, "", table(head, found), ""]


def main() -> None:
    """Run what is missing, cell by cell, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    names = [*(row.name for row in ROWS), *PAIRS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", help=f"some of: {'; '.join(names)}")
    parser.add_argument("--pretrain-only", nargs="*", choices=BEFORE, help="only pretrain these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/tasks"))
    options = parser.parse_args()
    for folder in (options.work, CELLS):
        folder.mkdir(parents=True, exist_ok=True)

    def begin(name: str) -> Path:
        return pretrained(name, options.data, options.work)

    if options.pretrain_only is not None:
        for name in options.pretrain_only:
            begin(name)
        return
    for name, before in PAIRS.items():
        if not options.only or name in options.only:
            minimal_pairs(name, begin(before), options.data)
    for seed in range(options.seeds):
        for row in ROWS:
            if options.only and row.name not in options.only:
                continue
            for start in row.starts:
                try:
                    measure(row, start, seed, options)
                except Stopped:
                    raise
                except MeristemError as error:
                    print(f"{row.name}, {start}: {error}", flush=True)
                PAGE.write_text(page(options.data), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
