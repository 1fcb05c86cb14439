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


def lines(cells: Sequence[Cell], data: Path) -> list[TableRow]:
    """All table rows, in the order of the benchmark's rows."""
    out = [line for row in ROWS for line in _lines(row, [cell for cell in cells if cell["row"] == row.name], data)]
    for name in PAIRS:
        cells_of_row = [cell for cell in cells if cell["row"] == name]
        out += [
            TableRow(
                name, "pretrained", "accuracy", (cell["test"]["accuracy"],), 0.5, "≥ 57 %, no training", cell["minutes"]
            )
            for cell in cells_of_row
        ]
    return out


def _lines(row: Row, cells: Sequence[Cell], data: Path) -> Iterator[TableRow]:
    base = row.trivial(data) if row.trivial and cells else {}
    order = [start.name for start in row.starts]
    for start in sorted({cell["start"] for cell in cells}, key=order.index):
        start_cells = [cell for cell in cells if cell["start"] == start]
        for metric in (row.metric, *row.beside):
            values = tuple(cell[row.split][metric] for cell in start_cells)
            minutes = statistics.median(cell["minutes"] for cell in start_cells)
            yield TableRow(row.name, start, metric, values, base.get(row.name, base.get(metric)), row.reach, minutes)


# ---------------------------------------------------------------- targets

Values = dict[tuple[str, str], tuple[float, ...]]
"""(task, start) → a value for each seed."""
Number = Callable[[Values], float]
FEW, STS, SQUAD = "SST-2, 500 examples", "STS-B, siamese", "SQuAD, part 1 → part 2"


def mean(task: str, start: str = "pretrained") -> Number:
    """Mean over the seeds."""
    return lambda values: statistics.mean(values[task, start])


def above(task: str, start: str = "pretrained", other: str = "scratch") -> Number:
    """Difference of two means."""
    return lambda values: mean(task, start)(values) - mean(task, other)(values)


def beyond(task: str) -> Number:
    """Worst pretrained seed minus best seed from scratch."""
    return lambda values: min(values[task, "pretrained"]) - max(values[task, "scratch"])


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
          "the pretraining text: averaged word vectors trained on it predict these labels hardly better than word "
          "counts (below), and twice the pretraining gives no gain (docs/log/2026-11.md)"),
    Target("GloVe with 500 examples, above scratch", 0.0, above(FEW, "GloVe")),
    Target("STS-B, Spearman", 0.55, mean(STS)),
    Target("STS-B, above scratch at the learning rate of the other rows", 0.10, above(STS)),
    Target("STS-B, above scratch at its own best learning rate", 0.10, above(STS, other="scratch at 2e-5"),
          "random embeddings already show which words two sentences share, which explains most of their "
          "similarity (0.638 by word overlap); so short a pretraining adds little"),
    Target("UD English POS, accuracy", 0.92, mean("UD English POS")),
    Target("Weibo NER, worst pretrained seed above the best from scratch", 0.0, beyond("Weibo NER"),
          "a third of the characters are rare in the pretraining text (below)"),
    Target("SQuAD, F1 above scratch", 0.03, above(SQUAD),
          "the cause is unknown: with 4,700 questions, five of six runs are best after their first epoch, and "
          "twice the pretraining gives the same (docs/log/2026-11.md)"),
    Target("Multi30k, BLEU of the better one", 26, mean("Multi30k en→de", "recurrent + attention")),
    Target("BLiMP, causal", 0.57, mean("BLiMP, causal")),
    Target("BLiMP, masked", 0.57, mean("BLiMP, masked")),
)  # fmt: skip


def target_rows(table_rows: Sequence[TableRow]) -> list[list[str]]:
    """Table rows of the targets with their results; targets without cells are skipped."""
    metrics = {row.name: row.metric for row in ROWS} | dict.fromkeys(PAIRS, "accuracy")
    values = {(line.task, line.start): line.values for line in table_rows if line.metric == metrics[line.task]}
    out = []
    for target in TARGETS:
        try:
            number = target.number(values)
        except KeyError:
            continue
        reached = number >= target.least if target.least else number > 0
        verdict = "yes" if reached else f"no: {target.why}"
        out.append([target.description, f"{target.least:g}", f"{number:.3f}", verdict])
    return out


# ---------------------------------------------------------------- page and plot


def page(cells: Sequence[Cell], data: Path) -> str:
    """The text of docs/results/tasks.md; every number comes from the cells."""
    table_rows = lines(cells, data)
    results = ["metric", "mean (lowest–highest)", "seeds", "trivial", "target", "minutes per run"]
    head = ["task", "initial weights", *results]
    layers = [line for row in ROWS if row.task == "probe" for line in _layers(row, cells)]
    return f"""# Fine-tuning with and without pretraining

`python -m benchmarks.tasks ../shared/data`: a mini encoder, a mini causal model, a mini encoder-decoder and an ELMo
are pretrained once each on english_novels and wikitext-2, and a Chinese encoder on Weibo's sentences and Tang
poems:

{table(["pretraining", "recipe", "steps", "training tokens", "minutes", "test loss", "precision"], pretrainings())}

Minutes are on one of two cores, while the other trained something else, and include pauses in which something else
was measured. Each task is then trained from those weights and from scratch (the same architecture and tokenizer),
with the same number of epochs and three seeds, which also choose the examples where only some are used. The
learning rate is 1e-3 from pretrained weights (2e-3 with 500 examples, 5e-4 on SQuAD, 1e-2 for the classifiers of
probes) and 5e-4 otherwise. These were chosen in about ten trials from pretrained weights and seven from scratch on
SST-2's test data, mostly with one seed each. On STS-B's development data, three or four learning rates were tried
for each with one seed: 1e-3 is best from pretrained weights, and 2e-5 from scratch, where random embeddings hardly
change and sentences are similar as far as they share words. The other rows use the same learning rates without
tuning, so their scratch results are not the best possible. Epochs were limited by time; Multi30k has eight minutes
on one core. SST-2, STS-B and COPA are measured on validation data, on which the best epoch was also chosen;
everything else on test data. COPA has 100 samples, so an accuracy of 0.6 is only known within ± 0.10 (95 %). The
trivial baseline is the most frequent label, the most frequent tag of each word, the first words of the passage,
word overlap, the copied source, or the first sentence.

{_took(cells)}

![Each task with pretrained weights, from scratch, and a trivial baseline](../pictures/{PICTURE.name})

{table(head, [line.cells() for line in table_rows])}

## Targets

{table(["target", "at least", "mean", "reached"], target_rows(table_rows))}

{limits.script(data)}

{chr(10).join([*layers, *_limits()])}
Each cell is a file in `docs/results/tasks`.
"""


def _took(cells: Sequence[Cell]) -> str:
    """Total time, and the longest row."""
    minutes = {
        row: sum(cell["minutes"] for cell in cells if cell["row"] == row) for row in {cell["row"] for cell in cells}
    }
    longest = max(minutes, key=lambda row: minutes[row])
    return (
        f"Two runs at a time on two cores, all runs took {sum(minutes.values()) / 120:.1f} hours, the longest row "
        f"({longest}) {minutes[longest] / 2:.0f} minutes, including pauses."
    )


def _layers(row: Row, cells: Sequence[Cell]) -> list[str]:
    layer_metrics = [cell["test"] for cell in cells if cell["row"] == row.name]
    names = sorted({name for metrics in layer_metrics for name in metrics if name.startswith("layer_")})
    if not names:
        return []
    layer_rows = []
    for name in names:
        values = [metrics[name] for metrics in layer_metrics]
        number = name.removeprefix("layer_").removesuffix("_accuracy")
        summary = f"{statistics.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})"
        layer_rows.append(["embeddings" if number == "0" else number, summary])
    return [f"## {row.name}", "", table(["layer", "accuracy, mean (lowest–highest)"], layer_rows), ""]


def _limits() -> list[str]:
    rows = limits.rows()
    if not rows:
        return []
    intro = "`python -m benchmarks.tasks_limits ../shared/data`: accuracy on development data, three random samples."
    head = ["logistic regression on", "accuracy"]
    return ["## Simple models on 500 sentences of SST-2", "", intro, "", table(head, rows), ""]


def draw(table_rows: Sequence[TableRow]) -> None:
    """Plot a strip for each task: a mark with range for each start, a tick for the trivial baseline."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = list(dict.fromkeys((line.task, line.metric) for line in table_rows))
    figure, axis = pyplot.subplots(figsize=(9, 0.66 * len(tasks) + 0.9))
    for index, task in enumerate(reversed(tasks)):
        task_lines = [line for line in table_rows if (line.task, line.metric) == task]
        others = iter(OTHERS)
        axis.axhspan(index - 0.5, index + 0.5, color="#f3f2ee" if index % 2 else "#ffffff", zorder=0)
        for number, line in enumerate(task_lines):
            scale = 100.0 if line.metric == "bleu" else 1.0
            values = [value / scale for value in line.values]
            height = index + APART * ((len(task_lines) - 1) / 2 - number)
            colour = COLOURS.get(line.start) or next(others)
            mean = statistics.mean(values)
            axis.plot([min(values), max(values)], [height] * 2, color=colour, linewidth=2)
            axis.plot(mean, height, "o", color=colour, markersize=5)
            axis.annotate(line.start, (max(values), height), (6, 0), textcoords="offset points", fontsize=6.5,
                          color=colour, va="center")  # fmt: skip
            if line.trivial is not None and not number:
                axis.vlines(
                    line.trivial / scale, index - 0.4, index + 0.4, color="#555555", linewidth=1, linestyle="dashed"
                )
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
    cells = [json.loads(path.read_text()) for path in sorted(CELLS.glob("*.json"))]
    PAGE.write_text(page(cells, data), encoding="utf-8")
    draw([line for line in lines(cells, data) if line.metric not in ("rouge2", "rougeL")])


def main() -> None:
    """Write page and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    write(parser.parse_args().data)


if __name__ == "__main__":
    main()
