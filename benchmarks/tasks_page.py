"""The page of the task benchmark: docs/results/tasks.md and its plot, generated from the cells.

python -m benchmarks.tasks_page ../shared/data
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tasks_limits as limits
from benchmarks.side_by_side import RESULTS, table
from benchmarks.tasks_pretraining import pretrainings
from benchmarks.tasks_rows import PAIRS, ROWS, Row

CELLS, PAGE = RESULTS / "tasks", RESULTS / "tasks.md"
PICTURE = RESULTS.parent / "pictures" / "tasks.png"
Cell = dict[str, Any]
COLOURS = {"pretrained": "#2e7d5b", "scratch": "#b5543c"}
APART = 0.22
"""Vertical distance between the starts of a task, whose strip has height 1."""
OTHERS = ("#3c6fb5", "#8e6bb0", "#8a8a8a")


@dataclass(frozen=True)
class TableRow:
    """One metric of a task from one start: a value for each seed, and the trivial baseline."""

    task: str
    start: str
    metric: str
    values: tuple[float, ...]
    trivial: float | None
    reach: str
    minutes: float

    def cells(self) -> list[str]:
        """The cells of the table row."""
        low, high = min(self.values), max(self.values)
        spread = f" ({low:.3f}–{high:.3f})" if len(self.values) > 1 else ""
        trivial = "–" if self.trivial is None else f"{self.trivial:.3f}"
        mean, seeds = f"{statistics.mean(self.values):.3f}{spread}", str(len(self.values))
        return [self.task, self.start, self.metric, mean, seeds, trivial, self.reach, f"{self.minutes:.1f}"]


def lines(found: Sequence[Cell], data: Path) -> list[TableRow]:
    """All table rows, in the order of the benchmark's rows."""
    out = [line for row in ROWS for line in _lines(row, [one for one in found if one["row"] == row.name], data)]
    for name in PAIRS:
        cells_of_row = [one for one in found if one["row"] == name]
        out += [
            TableRow(
                name, "pretrained", "accuracy", (cell["test"]["accuracy"],), 0.5, "≥ 57 %, no training", cell["minutes"]
            )
            for cell in cells_of_row
        ]
    return out


def _lines(row: Row, found: Sequence[Cell], data: Path) -> Iterator[TableRow]:
    base = row.trivial(data) if row.trivial and found else {}
    order = [start.name for start in row.starts]
    for start in sorted({one["start"] for one in found}, key=order.index):
        some = [one for one in found if one["start"] == start]
        for metric in (row.metric, *row.beside):
            values = tuple(one[row.split][metric] for one in some)
            minutes = statistics.median(one["minutes"] for one in some)
            yield TableRow(row.name, start, metric, values, base.get(row.name, base.get(metric)), row.reach, minutes)


# ---------------------------------------------------------------- targets

Values = dict[tuple[str, str], tuple[float, ...]]
"""(task, start) → a value for each seed."""
Number = Callable[[Values], float]
FEW, STS, SQUAD = "SST-2, 500 examples", "STS-B, siamese", "SQuAD, part 1 → part 2"


def mean(task: str, start: str = "pretrained") -> Number:
    """Mean over the seeds."""
    return lambda found: statistics.mean(found[task, start])


def above(task: str, start: str = "pretrained", other: str = "scratch") -> Number:
    """Difference of two means."""
    return lambda found: mean(task, start)(found) - mean(task, other)(found)


def beyond(task: str) -> Number:
    """Worst pretrained seed minus best seed from scratch."""
    return lambda found: min(found[task, "pretrained"]) - max(found[task, "scratch"])


@dataclass(frozen=True)
class Target:
    """A number, its target, and the reason if it is not reached."""

    description: str
    least: float
    number: Number
    why: str = ""


TARGETS = (
    Target("SST-2, accuracy", 0.81, mean("SST-2")),
    Target("SST-2 with 500 examples, above scratch", 0.04, above(FEW),
          "the text: averaged word vectors learned from it tell hardly more of these sentences than counted words "
          "(below), and twice the pretraining tells no more (docs/log/2026-11.md)"),
    Target("GloVe with 500 examples, above scratch", 0.0, above(FEW, "GloVe")),
    Target("STS-B, Spearman", 0.55, mean(STS)),
    Target("STS-B, above scratch at the rate of the other rows", 0.10, above(STS)),
    Target("STS-B, above scratch at its own best rate", 0.10, above(STS, other="scratch at 2e-5"),
          "random words that stay apart already say which words two sentences share, and these sentences are alike "
          "mostly by that (0.638 by counting); what so short a pretraining knows beyond is little"),
    Target("UD English POS, accuracy", 0.92, mean("UD English POS")),
    Target("Weibo NER, worst pretrained seed above the best from scratch", 0.0, beyond("Weibo NER"),
          "a third of the characters are hardly in the text that was read (below)"),
    Target("SQuAD, F1 above scratch", 0.03, above(SQUAD),
          "what limits it is not known: from 4,700 questions five of six runs are best after their first epoch, and "
          "twice the pretraining gives the same (docs/log/2026-11.md)"),
    Target("Multi30k, BLEU of the better one", 26, mean("Multi30k en→de", "recurrent + attention")),
    Target("BLiMP, causal", 0.57, mean("BLiMP, causal")),
    Target("BLiMP, masked", 0.57, mean("BLiMP, masked")),
)  # fmt: skip


def target_rows(shown: Sequence[TableRow]) -> list[list[str]]:
    """Table rows of the targets with their results; targets without cells are skipped."""
    metrics = {row.name: row.metric for row in ROWS} | dict.fromkeys(PAIRS, "accuracy")
    found = {(one.task, one.start): one.values for one in shown if one.metric == metrics[one.task]}
    out = []
    for target in TARGETS:
        try:
            number = target.number(found)
        except KeyError:
            continue
        reached = number >= target.least if target.least else number > 0
        said = "yes" if reached else f"no: {target.why}"
        out.append([target.description, f"{target.least:g}", f"{number:.3f}", said])
    return out


# ---------------------------------------------------------------- page and plot


def page(found: Sequence[Cell], data: Path) -> str:
    """The text of docs/results/tasks.md; every number comes from the cells."""
    shown = lines(found, data)
    head = ["task", "start", "metric", "mean (lowest–highest)", "seeds", "trivial", "reach", "minutes a run"]
    layers = [line for row in ROWS if row.task == "probe" for line in _layers(row, found)]
    return f"""# What pretraining is worth

`python -m benchmarks.tasks ../shared/data`: one pretraining each of a mini encoder, a mini causal model and a mini
encoder-decoder on english_novels and wikitext-2 (ELMo too; the Chinese encoder on Weibo's sentences and Tang poems):

{table(["pretraining", "recipe", "steps", "tokens read", "minutes", "test loss", "precision"], pretrainings())}

Minutes are of one core of two, whose other one trained something else meanwhile, and count pauses in which something
else was measured. Then each task from those weights and from nothing (the same shape and tokenizer), in as many epochs,
with three seeds, which also choose the examples where only some are used. Pretrained starts learn at 1e-3 (2e-3 with
500 examples, 5e-4 on SQuAD, probes' classifiers at 1e-2), others at 5e-4: from about ten
trials of the pretrained and seven of the scratch start on SST-2's test
data, mostly one seed each. On STS-B's development data three or four rates of either start were tried with one seed:
the pretrained one is best at 1e-3, scratch at 2e-5, where words that began apart at random stay so, and sentences are
alike as far as they share them. The other rows took the rates over untried, so their scratch lines are not the best
possible. Epochs were cut to what the time allowed; Multi30k has eight minutes of one core.
SST-2, STS-B and COPA are measured on validation data, by which the best epoch was chosen too; everything else on test
data. COPA has 100 of them, which alone leaves an accuracy of 0.6 within ± 0.10 (95 %).
`trivial` is the commonest label, the usual tag of each word, the passage's first words, the shared words, the
copied source, the first sentence.

{_took(found)}

![Each task from a pretrained start, from nothing, and without a model](../pictures/{PICTURE.name})

{table(head, [line.cells() for line in shown])}

## What was to be reached

{table(["what", "at least", "mean", "reached"], target_rows(shown))}

{limits.script(data)}

{chr(10).join([*layers, *_limits()])}
Each cell is a file in docs/results/tasks.
"""


def _took(found: Sequence[Cell]) -> str:
    """Total time, and the longest row."""
    each = {row: sum(one["minutes"] for one in found if one["row"] == row) for row in {one["row"] for one in found}}
    longest = max(each, key=lambda row: each[row])
    return (
        f"Two runs at a time on two cores, all cells took {sum(each.values()) / 120:.1f} hours, the longest row "
        f"({longest}) {each[longest] / 2:.0f} minutes, pauses counted."
    )


def _layers(row: Row, found: Sequence[Cell]) -> list[str]:
    some = [one["test"] for one in found if one["row"] == row.name]
    names = sorted({name for one in some for name in one if name.startswith("layer_")})
    if not names:
        return []
    means = []
    for name in names:
        values = [one[name] for one in some]
        number = name.removeprefix("layer_").removesuffix("_accuracy")
        summary = f"{statistics.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})"
        means.append(["embeddings" if number == "0" else number, summary])
    return [f"## {row.name}", "", table(["layer", "accuracy, mean (lowest–highest)"], means), ""]


def _limits() -> list[str]:
    found = limits.rows()
    if not found:
        return []
    intro = "`python -m benchmarks.tasks_limits ../shared/data`: accuracy on development data, three draws."
    head = ["logistic regression on", "accuracy"]
    return ["## What 500 sentences of SST-2 tell a model that only counts", "", intro, "", table(head, found), ""]


def draw(shown: Sequence[TableRow]) -> None:
    """Plot a strip for each task: a mark with range for each start, a tick for the trivial baseline."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = list(dict.fromkeys((line.task, line.metric) for line in shown))
    figure, axis = pyplot.subplots(figsize=(9, 0.66 * len(tasks) + 0.9))
    for at, task in enumerate(reversed(tasks)):
        some = [line for line in shown if (line.task, line.metric) == task]
        others = iter(OTHERS)
        axis.axhspan(at - 0.5, at + 0.5, color="#f3f2ee" if at % 2 else "#ffffff", zorder=0)
        for number, line in enumerate(some):
            whole = 100.0 if line.metric == "bleu" else 1.0
            values = [value / whole for value in line.values]
            height = at + APART * ((len(some) - 1) / 2 - number)
            colour = COLOURS.get(line.start) or next(others)
            mean = statistics.mean(values)
            axis.plot([min(values), max(values)], [height] * 2, color=colour, linewidth=2)
            axis.plot(mean, height, "o", color=colour, markersize=5)
            axis.annotate(line.start, (max(values), height), (6, 0), textcoords="offset points", fontsize=6.5,
                          color=colour, va="center")  # fmt: skip
            if line.trivial is not None and not number:
                axis.vlines(line.trivial / whole, at - 0.4, at + 0.4, color="#555555", linewidth=1, linestyle="dashed")
    axis.set_yticks(range(len(tasks)), [f"{task}\n{metric}" for task, metric in reversed(tasks)], fontsize=7.5)
    axis.set(xlim=(0, 1.12), ylim=(-0.5, len(tasks) - 0.5))
    axis.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axis.tick_params(axis="x", labelsize=8)
    axis.tick_params(axis="y", length=0)
    axis.set_title("mean and spread of the seeds; dashed: what needs no model; BLEU as a share of 100", fontsize=8,
                   loc="left", color="#22313f")  # fmt: skip
    axis.spines[["top", "right", "left"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=130)
    pyplot.close(figure)


def write(data: Path) -> None:
    """Write page and plot from the existing cells."""
    found = [json.loads(path.read_text()) for path in sorted(CELLS.glob("*.json"))]
    PAGE.write_text(page(found, data), encoding="utf-8")
    draw([line for line in lines(found, data) if line.metric not in ("rouge2", "rougeL")])


def main() -> None:
    """Write page and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    write(parser.parse_args().data)


if __name__ == "__main__":
    main()
