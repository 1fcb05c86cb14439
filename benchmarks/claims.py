"""Published claims on real text: the comparisons of meristem/claims, and one page with the verdicts of all of them.

python -m benchmarks.claims DATA [NAME …] [--out runs/claims] [--seeds 3] [--share 1.0] [--parallel 1]

DATA is a folder with wikitext-2, sst2, stsb, ud_ewt, multi30k, blimp and glove; 6,000 training and 400 validation
samples are drawn from sst2 and ud_ewt. Cells that have finished in --out are
not repeated. Each claim leaves a file in docs/results/claims with its cells; docs/results/claims.md is made from all
files, so that claims can be run one by one, and p-values are adjusted over all of them. Without names, only the page
is made.
"""

from __future__ import annotations

import argparse
import json
import random
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.compare.claim_results import ClaimResult, ExpectationResult, adjust_p_values
from meristem.compare.claim_settings import claim_files, read_claim
from meristem.compare.measures import read_run
from meristem.compare.run_claims import ClaimsReport, run_claims
from meristem.compare.statistics import PairedComparison

CLAIMS = RESULTS / "claims"
PAIRS_PER_PARADIGM = 20
SAMPLES = {"train": 6000, "validation": 400}
"""Labelled samples that are drawn from the first two files of a data set."""


def claim_data(folder: Path, out: Path) -> dict[str, Any]:
    """Name of data → files."""
    pairs = out / "blimp.jsonl"
    if not pairs.is_file():
        out.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / "blimp" / "BLiMP.zip") as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".jsonl") and "/._" not in name)
            lines = [line for name in names for line in archive.read(name).decode().splitlines()[:PAIRS_PER_PARADIGM]]
        pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    splits = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    return {
        "text": str(folder / "wikitext-2" / "train.txt"),
        "bilingual_text": [str(folder / "multi30k" / f"train.{language}") for language in ("en", "de")],
        "sentiment": _sampled(folder / "sst2", ("train.tsv", "dev.tsv", "test-labeled.tsv"), out, header=True),
        "pair": {
            **_splits(folder / "stsb", "sts-train.csv", "sts-dev.csv", "sts-test.csv"),
            "format": "tsv",
            "header": False,
            "skip_bad": True,
            "label": "5",
            "text": "6",
            "text_b": "7",
        },
        "pos": {
            **_sampled(folder / "ud_ewt", ("train.tsv", "dev.tsv", "test.tsv"), out, separator="\n\n"),
            "format": "conll",
        },
        "translation": {
            **{split: str(folder / "multi30k" / f"{name}.en") for split, name in splits.items()},
            "target": str(folder / "multi30k" / "train.de"),
            "validation_target": str(folder / "multi30k" / "val.de"),
            "test_target": str(folder / "multi30k" / "test_2016_flickr.de"),
        },
        "minimal_pairs": str(pairs),
        "word_vectors": str(folder / "glove" / "glove.6B.50d.top40k.txt"),
    }


def _sampled(
    folder: Path, names: tuple[str, str, str], out: Path, *, separator: str = "\n", header: bool = False
) -> dict[str, str]:
    """Training and validation files of at most `SAMPLES` samples, so that reading them costs no more than training; the
    whole test file."""
    files: dict[str, str] = {"test": str(folder / names[2])}
    for split, name in zip(SAMPLES, names, strict=False):
        file = out / folder.name / name
        if not file.is_file():
            first, *samples = (folder / name).read_text(encoding="utf-8").strip("\n").split(separator)
            kept = random.Random(0).sample(samples, min(SAMPLES[split], len(samples)))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(separator.join([first, *kept] if header else kept) + "\n", encoding="utf-8")
        files[split] = str(file)
    return files


def _splits(folder: Path, train: str, validation: str, test: str) -> dict[str, str]:
    return {"train": str(folder / train), "validation": str(folder / validation), "test": str(folder / test)}


def write_result(result: ClaimResult, out: Path) -> None:
    """The file of a claim: what was measured, and the values of every cell."""
    cells = [
        {"comparison": run.parents[1].name, "cell": run.name, "values": measures.values, "used": measures.used}
        for run in sorted((out / result.name).glob("*/cells/*"))
        if (measures := read_run(run)) is not None
    ]
    record = {
        "name": result.name,
        "seeds": result.seeds,
        "budgets": result.budgets,
        "minutes": result.minutes,
        "flops": result.flops,
        "expectations": [asdict(expectation) for expectation in result.expectations],
        "machine": {"features": bfloat16_features(), "torch": torch.__version__},
        "cells": cells,
    }
    CLAIMS.mkdir(parents=True, exist_ok=True)
    (CLAIMS / f"{result.name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_result(file: Path) -> ClaimResult:
    """The result in a claim's file."""
    record = json.loads(file.read_text(encoding="utf-8"))
    expectations = [
        ExpectationResult(
            **{**of, "difference": PairedComparison(**of["difference"]), "obstacles": tuple(of["obstacles"])}
        )
        for of in record["expectations"]
    ]
    claim = read_claim(record["name"])
    kept = {key: record[key] for key in ("name", "seeds", "budgets", "minutes", "flops")}
    return ClaimResult(claim=claim, expectations=expectations, **kept)


def main() -> None:
    """Run the claims that are named, and write the page of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of each claim's budget")
    parser.add_argument("--parallel", type=int, default=1)
    options = parser.parse_args()
    for name in options.names:
        report = run_claims(
            [name], options.out, Console(stderr=True), data=claim_data(options.data, options.out),
            seeds=options.seeds, budget_share=options.share, parallel=options.parallel,
        )  # fmt: skip
        write_result(report.results[0], options.out)
    write_page()


def write_page() -> None:
    """The page of all claims that have been run, with the names of the others."""
    results = adjust_p_values([read_result(file) for file in sorted(CLAIMS.glob("*.json"))])
    others = [name for name in claim_files() if name not in {result.name for result in results}]
    body = ClaimsReport(results=results).to_markdown().removeprefix("# Claims\n")
    lines = [
        "# Claims of papers, at this scale",
        "",
        "Every claim of `meristem/claims` that has been run so far, on real text: WikiText-2, SST-2, UD English EWT,",
        "STS-B, Multi30k, BLiMP (20 pairs of each paradigm), GloVe. The command is",
        "`python -m benchmarks.claims DATA NAME`, once more to resume it; the cells of each claim are in the folder",
        "[claims](claims). Verdicts follow p-values adjusted over all claims of this page. The papers' figures are",
        "quoted as an orientation; their models are thousands of times larger, so no verdict here contradicts a paper.",
        *(["", f"Not run: {', '.join(f'`{name}`' for name in others)}."] if others else []),
        body,
    ]
    (RESULTS / "claims.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
