"""Cost as work grows: training speed and memory for lengths, widths and cores, with fitted laws.

    python -m benchmarks.cost_growth [--lengths 128,512] [--widths 128,256] [--cores 1,2] [--steps 5]

A causal step of 4 layers (a head per 64 channels), vocabulary 8,192, 4,096 tokens a step, bfloat16 where it is faster;
each cell in a process of its own. Cells are kept in docs/results/scaling.json: a second call measures what is missing,
and writes docs/results/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np
import torch

from benchmarks.side_by_side import RESULTS, table
from benchmarks.steps import Case, our_step
from meristem.blocks.bfloat16_speed import bfloat16_features, product_speedup
from meristem.training.budget import memory_in_use, total_step_flops
from meristem.training.precision import MIN_SPEEDUP, Precision

LENGTHS, WIDTHS, CORES = (128, 256, 512, 1024, 2048, 4096), (128, 256, 512, 768, 1024), (1, 2)
LENGTH_WIDTH, WIDTH_LENGTH = 256, 256
"""The width at which lengths are compared, and the length at which widths are."""
LAYERS, VOCABULARY, STEP_TOKENS = 4, 8192, 4096
CELLS_FILE, PAGE = RESULTS / "scaling.json", RESULTS / "scaling.md"
LAW_UNITS = {"length": "token of the row", "width": "MFLOP per token"}
"""Time per token grows with the length (attention) and with the FLOPs of the width."""
BEND = 0.1
"""A measurement this far from the law (as a share) is where it bends."""


@dataclass(frozen=True, kw_only=True)
class SizedCase(Case):
    """A causal step of any length and width."""

    row_length: int
    width: int

    @property
    def shape(self) -> dict[str, int]:
        """Layers, hidden size and heads."""
        return {"layers": LAYERS, "hidden_size": self.width, "heads": max(1, self.width // 64)}

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return self.row_length

    @property
    def num_rows(self) -> int:
        """Rows of a step."""
        return max(1, STEP_TOKENS // self.row_length)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement."""

    length: int
    width: int
    cores: int
    tokens_per_second: float
    flops_per_token: float
    memory_bytes: int
    """Peak memory above that of the process before the model was built."""
    precision: str

    @property
    def key(self) -> tuple[int, int, int]:
        """What was measured."""
        return self.length, self.width, self.cores


def measure(length: int, width: int, cores: int, steps: int) -> Cell:
    """One cell, in this process: the fastest of so many steps after a first one, which allocates."""
    torch.set_num_threads(cores)
    before = memory_in_use(torch.device("cpu"))
    is_bfloat16_faster = bool(bfloat16_features()) and product_speedup(width) >= MIN_SPEEDUP
    precision: Precision = "bfloat16" if is_bfloat16_faster else "float32"
    case = SizedCase(kind="clm", size="", vocabulary=VOCABULARY, row_length=length, width=width)
    step, learner, batch = our_step(case, precision)
    step()
    durations = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        durations.append(time.perf_counter() - start)
    memory_bytes = memory_in_use(torch.device("cpu")) - before
    return Cell(
        length=length,
        width=width,
        cores=cores,
        tokens_per_second=batch.num_tokens / min(durations),
        flops_per_token=total_step_flops(learner, "main", [batch]) / batch.num_tokens,
        memory_bytes=memory_bytes,
        precision=precision,
    )


def measure_in_process(length: int, width: int, cores: int, steps: int) -> Cell:
    """The same in a new process, whose peak memory is its own."""
    code = (
        "import dataclasses, json, benchmarks.cost_growth as growth; "
        f"print(json.dumps(dataclasses.asdict(growth.measure({length}, {width}, {cores}, {steps}))))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores)}
    completed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return Cell(**json.loads(completed.stdout.strip().splitlines()[-1]))


def read_cells() -> dict[tuple[int, int, int], Cell]:
    """Cells measured before."""
    if not CELLS_FILE.is_file():
        return {}
    names = {item.name for item in fields(Cell)}
    saved = json.loads(CELLS_FILE.read_text())["cells"]
    cells = [Cell(**{name: value for name, value in cell.items() if name in names}) for cell in saved]
    return {cell.key: cell for cell in cells}


def write_cells(cells: Sequence[Cell]) -> None:
    """Write all cells, in order, and what they were measured on."""
    content = {
        "torch": torch.__version__,
        "bfloat16": bfloat16_features(),
        "cells": [asdict(cell) for cell in sorted(cells, key=lambda cell: (cell.cores, cell.width, cell.length))],
    }
    CELLS_FILE.write_text(json.dumps(content, indent=1) + "\n")


@dataclass(frozen=True)
class Law:
    """Seconds per token = constant + slope · x, fitted so that relative errors count."""

    constant: float
    slope: float

    def __call__(self, x: float) -> float:
        """Seconds per token at x."""
        return self.constant + self.slope * x


def fit(x: Sequence[float], seconds: Sequence[float]) -> Law:
    """Least squares of the relative error."""
    weights = 1 / np.asarray(seconds)
    design = np.stack([np.ones(len(x)), np.asarray(x, float)], 1) * weights[:, None]
    constant, slope = np.linalg.lstsq(design, np.ones(len(x)), rcond=None)[0]
    return Law(float(constant), float(slope))


def section(title: str, cells: Sequence[Cell], of: Callable[[Cell], int], law_of: Callable[[Cell], float]) -> list[str]:
    """A table of one series, its law in `law_of`, and where it bends."""
    law = fit([law_of(cell) for cell in cells], [1 / cell.tokens_per_second for cell in cells])
    rows, bends = [], []
    for cell in cells:
        error = 1 / cell.tokens_per_second / law(law_of(cell)) - 1
        bends += [f"{of(cell):,} ({error:+.0%})"] if abs(error) > BEND else []
        rows.append([
            f"{of(cell):,}", f"{cell.tokens_per_second:,.0f}", f"{cell.flops_per_token / 1e6:,.1f}",
            f"{cell.flops_per_token * cell.tokens_per_second / 1e9:,.0f}", f"{cell.memory_bytes / 2**20:,.0f}",
            f"{error:+.0%}", cell.precision,
        ])  # fmt: skip
    header = [title, "tokens/s", "MFLOP per token", "GFLOP/s", "memory MB", "time against the law", "precision"]
    bend_line = f"It bends at {', '.join(bends)}." if bends else f"No cell is further than {BEND:.0%} from it."
    law_line = f"Law: {law.constant * 1e6:.1f} µs per token, and {law.slope * 1e6:.3g} µs for each"
    return [table(header, rows), "", f"{law_line} {LAW_UNITS[title.split()[0]]}. {bend_line}", ""]


def page(cells: Sequence[Cell]) -> str:
    """The page."""
    features = ", ".join(bfloat16_features()) or "no bfloat16 units"
    lines = [
        "# Cost as work grows", "",
        f"Written by `python -m benchmarks.cost_growth` (cells in `scaling.json`): torch {torch.__version__}, "
        f"{features}; a causal step of {LAYERS} layers, {VOCABULARY:,} tokens of vocabulary, {STEP_TOKENS:,} tokens a "
        "step, dropout 0. "
        "Memory is the peak above that of the process before the model was built.", "",
    ]  # fmt: skip
    for cores in sorted({cell.cores for cell in cells}):
        chosen = [cell for cell in cells if cell.cores == cores]
        lines += [f"## {cores} core{'s' * (cores > 1)}", ""]
        by_length = sorted((c for c in chosen if c.width == LENGTH_WIDTH), key=lambda cell: cell.length)
        by_width = sorted((c for c in chosen if c.length == WIDTH_LENGTH), key=lambda cell: cell.width)
        if len(by_length) > 1:
            lines += section(
                f"length (width {LENGTH_WIDTH})", by_length, lambda cell: cell.length, lambda cell: cell.length
            )
        if len(by_width) > 1:
            lines += section(
                f"width (length {WIDTH_LENGTH})",
                by_width,
                lambda cell: cell.width,
                lambda cell: cell.flops_per_token / 1e6,
            )
    return "\n".join(lines).rstrip() + "\n"


def numbers(text: str) -> list[int]:
    """Integers separated by commas."""
    return [int(word) for word in text.split(",")]


def main() -> None:
    """Measure missing cells and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=numbers, default=list(LENGTHS))
    parser.add_argument("--widths", type=numbers, default=list(WIDTHS))
    parser.add_argument("--cores", type=numbers, default=list(CORES))
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    cells = read_cells()
    for cores in options.cores:
        shapes = [(length, LENGTH_WIDTH) for length in options.lengths]
        shapes += [(WIDTH_LENGTH, width) for width in options.widths]
        for length, width in dict.fromkeys(shapes):
            if (length, width, cores) not in cells:
                cells[length, width, cores] = measure_in_process(length, width, cores, options.steps)
                print(cells[length, width, cores], flush=True)
                write_cells(list(cells.values()))
    PAGE.write_text(page(list(cells.values())))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
