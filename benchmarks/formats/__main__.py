"""Exports and imports compared with their real consumers: one table, and the cost of 8-bit weights.

    python -m benchmarks.formats [--cells docs/results/formats] [--skip-cost] [--out docs/results/formats.md]

Needs the environment of `make test-formats`. Each comparison is one cell with a file of its own, so that a stopped run
goes on. A consumer that is not installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.formats.cases import CTRANSLATE2_CASES, GGUF_CASES, ONNX_RECIPES, SENTENCE_CASES, Case
from benchmarks.formats.comparison import Comparison, table
from benchmarks.formats.runs import random_run

Compare = Callable[[Path, Path], Comparison]


def comparisons() -> Iterator[tuple[str, str, Case, Compare]]:
    """Name, needed module, run and comparison of every cell."""
    from benchmarks.formats import (
        ctranslate2_consumer,
        gguf_consumer,
        onnx_consumer,
        sentence_transformers_consumer,
        sources,
    )

    for case in GGUF_CASES:
        yield f"gguf {case.name}", "llama_cpp", case, gguf_consumer.compare_gguf
        yield f"from gguf {case.name}", "gguf", case, sources.compare_gguf_import
    for case in CTRANSLATE2_CASES:
        yield f"ctranslate2 {case.name}", "ctranslate2", case, ctranslate2_consumer.compare_ctranslate2
    for recipe in ONNX_RECIPES:
        yield f"onnx {recipe}", "onnxruntime", Case(recipe), onnx_consumer.compare_onnx
        yield (
            f"onnx int8 {recipe}",
            "onnxruntime",
            Case(recipe),
            lambda run, out: onnx_consumer.compare_onnx(run, out, int8=True),
        )
    for case in SENTENCE_CASES:
        compare = sentence_transformers_consumer.compare_sentence_transformers
        yield f"sentence-transformers {case.name}", "sentence_transformers", case, compare


def measure(cell: Path, case: Case, compare: Compare) -> Comparison:
    """One comparison, from its file if it was made before."""
    if cell.is_file():
        return Comparison(**json.loads(cell.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        row = compare(random_run(case.recipe, Path(folder, "run"), case.overrides), Path(folder, "out"))
    changes = ", ".join(change.removeprefix("model.").removeprefix("tokenizer.") for change in case.overrides)
    family = row.family.replace("run", case.recipe, 1)  # a run has the name of its folder
    row = Comparison(**{**row.to_json(), "family": family + (f" ({changes})" if changes else "")})
    cell.parent.mkdir(parents=True, exist_ok=True)
    cell.write_text(json.dumps(row.to_json(), indent=1) + "\n")
    return row


def main() -> None:
    """Print the tables, and write them to a page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=Path, default=Path("docs/results/formats"))
    parser.add_argument("--skip-cost", action="store_true", help="leave out the models trained for 8-bit weights")
    parser.add_argument("--out", type=Path, help="write the page here")
    options = parser.parse_args()
    rows, missing = [], set()
    for name, module, case, compare in comparisons():
        cell = options.cells / (re.sub(r"[^\w.-]+", "-", name) + ".json")
        if cell.is_file() or find_spec(module):
            rows.append(measure(cell, case, compare))
            print(table(rows).splitlines()[-1], flush=True)
        else:
            missing.add(module)
    parts = [table(rows)]
    if missing:
        parts.append(f"Not installed, so not compared: {', '.join(sorted(missing))}.")
    if not options.skip_cost:
        from benchmarks.formats.int8_cost import SEEDS, cost_table, measure_seed

        cells = [measure_seed(seed, options.cells / f"int8-cost-seed-{seed}.json") for seed in SEEDS]
        parts.append(cost_table(cells))
    print("\n\n".join(parts))
    if options.out:
        page = options.out.read_text(encoding="utf-8")
        for number, part in enumerate((parts[0], parts[-1])):
            page = re.sub(
                rf"(<!-- table {number} -->\n).*?(<!-- end {number} -->)",
                lambda match, part=part: f"{match[1]}\n{part}\n\n{match[2]}",
                page,
                flags=re.DOTALL,
            )
        options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
