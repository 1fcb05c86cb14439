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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import tasks_limits as limits
from benchmarks import tasks_trivial as trivial
from benchmarks.side_by_side import RESULTS, table
from benchmarks.tasks_before import BEFORE, pretrained, pretrainings, quickest
from meristem import api
from meristem.errors import MeristemError
from meristem.training.signals import Stopped

CELLS, PAGE = RESULTS / "tasks", RESULTS / "tasks.md"
Numbers = dict[str, float]


# ---------------------------------------------------------------- what is measured


@dataclass(frozen=True)
class Start:
    """Where the weights of a line begin, and at which rate that learns best."""

    name: str
    settings: tuple[str, ...]
    before: str | None = None
    """A pretraining other than the row's."""


PRETRAINED = Start("pretrained", ("from.take=all", "train.rate=1e-3"))
SCRATCH = Start("scratch", ("from.take=nothing", "train.rate=5e-4"))


@dataclass(frozen=True)
class Row:
    """Lines of the table: a task on its data, from one pretraining and from nothing."""

    name: str
    task: str
    before: str | None
    metric: str
    reach: str
    data: Callable[[Path, Path], list[str]]
    settings: tuple[str, ...] = ()
    starts: tuple[Start, ...] = (PRETRAINED, SCRATCH)
    trivial: Callable[[Path], Numbers] | None = None
    split: str = "test"
    """Which numbers are shown: of the test, or of the validation data where a task's test has no labels."""
    beside: tuple[str, ...] = ()
    """Further metrics that are shown."""


def _files(folder: str, **splits: str) -> Callable[[Path, Path], list[str]]:
    return lambda data, work: [f"data.{name}={data / folder / file}" for name, file in splits.items()]


def _sst(data: Path, work: Path) -> list[str]:
    return _files("sst2", train="train.tsv", validation="dev.tsv")(data, work)


def _sts(data: Path, work: Path) -> list[str]:
    columns = ["data.header=false", "data.text='6'", "data.text_b='7'", "data.label='5'"]
    return [*_files("stsb", train="sts-train.csv", validation="sts-dev.csv")(data, work), *columns]


def _weibo(data: Path, work: Path) -> list[str]:
    """Each character's number within its word, which stands behind it, is left out."""
    out = []
    for split, file in (("train", "train"), ("validation", "dev"), ("test", "test")):
        plain = work / f"weibo-{file}.conll"
        if not plain.is_file():
            lines = (data / "weibo_ner" / f"weiboNER_2nd_conll.{file}").read_text(encoding="utf-8").splitlines()
            kept = (f"{line[0]}\t{line.split()[-1]}" if line.strip() else "" for line in lines)
            plain.write_text("\n".join(kept) + "\n", encoding="utf-8")
        out.append(f"data.{split}={plain}")
    return out


def _multi30k(data: Path, work: Path) -> list[str]:
    folder = data / "multi30k"
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    sides = {"train": "target", "validation": "validation_target", "test": "test_target"}
    sources = [f"data.{split}={folder / f'{name}.en'}" for split, name in names.items()]
    return [*sources, *(f"data.{sides[split]}={folder / f'{name}.de'}" for split, name in names.items())]


SHORT = ("train.batch_samples=32", "train.schedule=linear", "train.warmup=0.1")
QUICK = f"train.precision={quickest()}"
MEAN = "task.pooling=mean"  # a model that never compared sentences has nothing in its first state
FEW = (*SHORT, MEAN, "data.limit=500", "train.epochs=8")
FAST = "train.rate=2e-3"  # what a pretrained encoder learns best with from few examples
READ = Start("pretrained, and on SST-2's sentences without labels", ("from.take=all", FAST), before="reviews")
SLOW = Start("scratch at 2e-5", ("from.take=nothing", "train.rate=2e-5"))  # random words begin as shared words do
GLOVE = Start("GloVe", (*SCRATCH.settings, "from.vectors={data}/glove/glove.6B.50d.top40k.txt"))
RECURRENT = ("model={family: rnn, layers: 2, width: 256, length: 64, initial: 0.2}", "train.rate=4e-3",
             "train.optimizer=adamw")  # fmt: skip
UD = _files("ud_ewt", train="train.tsv", validation="dev.tsv", test="test.tsv")
SQUAD = _files("squad", train="dev-v1.1.part1-24articles.json", test="dev-v1.1.part2-24articles.json")
COPA = _files("copa", train="train.jsonl", validation="val.jsonl")
TLDR = _files("scitldr", train="train.jsonl", validation="dev.jsonl", test="test.jsonl")
ROWS = [
    Row("SST-2", "classification", "encoder", "accuracy", "≥ 81 %", _sst, (*SHORT, MEAN, "train.epochs=1"),
        trivial=trivial.commonest_label, split="validation"),
    Row("SST-2, 500 examples", "classification", "encoder", "accuracy", "≥ 4 points above scratch; GloVe above it",
        _sst, FEW,
        starts=(Start("pretrained", ("from.take=all", FAST)), READ, SCRATCH, GLOVE), trivial=trivial.commonest_label,
        split="validation"),
    Row("STS-B, siamese", "pair", "encoder", "spearman", "≥ 0.55, ≥ 0.10 above scratch", _sts,
        (*SHORT, MEAN, "task.siamese=true", "train.epochs=3"), starts=(PRETRAINED, SCRATCH, SLOW),
        trivial=trivial.shared_words, split="validation"),
    Row("UD English POS", "tagging", "encoder", "accuracy", "≥ 92 %", UD, (*SHORT, "train.epochs=2"),
        trivial=trivial.usual_tags),
    Row("Weibo NER", "tagging", "chinese", "f1", "above scratch", _weibo, (*SHORT, "train.epochs=8")),
    Row("SQuAD, part 1 → part 2", "span", "encoder", "f1", "≥ 3 F1 above scratch", SQUAD,
        (*SHORT, QUICK, "data.held_out=0.05", "model.length=256", "task.length=256", "train.epochs=2"),
        starts=(Start("pretrained", ("from.take=all", "train.rate=5e-4")), SCRATCH), trivial=trivial.first_words),
    Row("COPA", "choice", "causal", "accuracy", "reported", COPA,
        (*SHORT, "train.epochs=6"),
        starts=(Start("pretrained", (*PRETRAINED.settings, "task.lm=0")),
                Start("pretrained, λ = 0.5", (*PRETRAINED.settings, "task.lm=0.5")),
                Start("scratch", (*SCRATCH.settings, "task.lm=0"))),
        trivial=trivial.commonest_choice, split="validation"),
    Row("Multi30k en→de", "translation", None, "bleu", "≥ 26 for the better one", _multi30k,
        ("train.minutes=8", "model.layers=2", QUICK),
        starts=(Start("Transformer", ()), Start("recurrent + attention", RECURRENT)), trivial=trivial.copied),
    Row("SciTLDR", "summary", "writer", "rouge1", "beside the lead sentence", TLDR, (*SHORT, QUICK, "train.epochs=4"),
        trivial=trivial.lead, beside=("rouge2", "rougeL")),
    Row("UD English POS by layer (ELMo)", "probe", "elmo", "accuracy", "a table", UD, (*SHORT, "train.epochs=2"),
        starts=(PRETRAINED,), trivial=trivial.usual_tags),
    Row("word senses by layer (ELMo)", "probe", "elmo", "accuracy", "a table",
        lambda data, work: [f"data.{split}=builtin:microworld-senses?size={size}&seed={seed}"
                            for split, size, seed in (("train", 2000, 1), ("validation", 500, 2), ("test", 500, 3))],
        (*SHORT, "train.epochs=4"), starts=(PRETRAINED,)),
]  # fmt: skip
PAIRS = {"BLiMP, causal": "causal", "BLiMP, masked": "encoder"}
"""Without training: minimal pairs, 200 of each phenomenon, scored by pretrained runs."""


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
