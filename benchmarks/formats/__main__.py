"""Exports and imports compared with their real consumers: one table, and the cost of 8-bit weights.

    python -m benchmarks.formats [--cells docs/results/formats] [--skip-cost] [--out docs/results/formats.md …]

Needs the environment of `make test-formats`. Each comparison is one cell with a file of its own, so that a stopped run
goes on. A consumer that is not installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.formats.cases import CTRANSLATE2_CASES, GGUF_CASES, ONNX_CASES, SENTENCE_CASES, TRANSFORMERS_CASES, Case
from benchmarks.formats.comparison import Comparison, summary, table
from benchmarks.formats.runs import random_run

Compare = Callable[[Path, Path], Comparison]
"""A run and a new folder → what was compared."""


@dataclass(frozen=True)
class Cell:
    """One comparison, with a file of its own."""

    name: str
    module: str
    """Without it the comparison cannot be made."""
    compare: Callable[[Path], Comparison]
    """In a new folder."""

    @property
    def file_name(self) -> str:
        """The file of its result."""
        return re.sub(r"[^\w.-]+", "-", self.name) + ".json"


def iter_cells() -> Iterator[Cell]:
    """Every comparison, consumers first, then sources."""
    from benchmarks.formats import (
        ctranslate2_consumer,
        gguf_consumer,
        onnx_consumer,
        sentence_transformers_consumer,
        sources,
        transformers_consumer,
    )

    int8_onnx = partial(onnx_consumer.compare_onnx, int8=True)
    consumers: list[tuple[str, str, Sequence[Case], Compare]] = [
        ("gguf", "llama_cpp", GGUF_CASES, gguf_consumer.compare_gguf),
        ("ctranslate2", "ctranslate2", CTRANSLATE2_CASES, ctranslate2_consumer.compare_ctranslate2),
        ("onnx", "onnxruntime", ONNX_CASES, onnx_consumer.compare_onnx),
        ("onnx int8", "onnxruntime", ONNX_CASES, int8_onnx),
        ("sentence-transformers", "sentence_transformers", SENTENCE_CASES,
         sentence_transformers_consumer.compare_sentence_transformers),
        ("transformers", "transformers", TRANSFORMERS_CASES, transformers_consumer.compare_transformers),
        ("from gguf", "gguf", GGUF_CASES, sources.compare_gguf_import),
        ("from transformers", "transformers", TRANSFORMERS_CASES, sources.compare_folder_import),
    ]  # fmt: skip
    for consumer, module, cases, compare in consumers:
        for case in cases:
            yield Cell(f"{consumer} {case.name}", module, partial(compare_case, case, compare))
    for bias in (True, False):
        yield Cell(f"from nanogpt bias={bias}", "torch", partial(sources.compare_nanogpt, bias=bias))
    for later in (False, True):
        yield Cell(f"from uer later_names={later}", "torch", partial(sources.compare_uer, later_names=later))


def compare_case(case: Case, compare: Compare, folder: Path) -> Comparison:
    """Make the run of a case, compare it, and name the family after the recipe and what was changed in it."""
    row = compare(random_run(case.recipe, folder / "run", case.overrides), folder / "out")
    changes = ", ".join(change.removeprefix("model.").removeprefix("tokenizer.") for change in case.overrides)
    family = row.family.replace("run", case.recipe, 1)  # a run has the name of its folder
    return replace(row, family=family + (f" ({changes})" if changes else ""))


def measure(cell: Cell, path: Path) -> Comparison:
    """One comparison, from its file if it was made before."""
    if path.is_file():
        return Comparison(**json.loads(path.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        row = cell.compare(Path(folder))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row.to_json(), indent=1) + "\n")
    return row


def main() -> None:
    """Print the tables, and write them to a page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=Path, default=Path("docs/results/formats"))
    parser.add_argument("--runs", type=Path, default=Path("runs/formats"), help="models trained for that cost")
    parser.add_argument("--skip-cost", action="store_true", help="leave out the models trained for 8-bit weights")
    parser.add_argument("--out", type=Path, nargs="*", default=[], help="pages whose tables are replaced")
    options = parser.parse_args()
    rows, missing = [], set()
    for cell in iter_cells():
        path = options.cells / cell.file_name
        if path.is_file() or find_spec(cell.module):
            rows.append(measure(cell, path))
            print(table(rows).splitlines()[-1], flush=True)
        else:
            missing.add(cell.module)
    tables = {"formats": table(rows), "summary": summary(rows)}
    if missing:
        print(f"Not installed, so not compared: {', '.join(sorted(missing))}.")
    if not options.skip_cost:
        from benchmarks.formats.int8_cost import SEEDS, cost_table, measure_seed

        cells = [measure_seed(seed, options.cells / f"int8-cost-seed-{seed}.json", options.runs) for seed in SEEDS]
        tables["cost"] = cost_table(cells)
    print("\n\n".join(tables.values()))
    for page in options.out:
        page.write_text(fill_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def fill_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page with each table between its two marks."""
    for name, text in tables.items():
        marks = rf"(<!-- table {name} -->\n).*?(<!-- end {name} -->)"
        page = re.sub(marks, lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    main()
