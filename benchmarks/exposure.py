"""Exposure of canaries in small causal and masked models, with duplicates removed, and in models that never saw them.

python -m benchmarks.exposure [--seeds 3] [--steps 150] [--only causal,masked] [--arms planted,private,…]

Every cell is one training run and one `meristem exposure`, in docs/results/trust/exposure-KIND--ARM--SEED.json;
finished cells are not repeated. The tables go to docs/results/exposure.md. The arms read the same documents:

- planted: `corpus.canaries` plants canaries 1, 4, 16, 64 and 256 times, other ones for each seed;
- deduplicated: a file with the same copies of the same canaries, read with `corpus.deduplicate`;
- control: without them;
- private (causal): as planted, with differential privacy at ε = 3;
- overtrained (causal): few documents without canaries, read many times, so that extraction happens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.checkpoint.load_run import load_run
from meristem.config.recipe import PretrainRecipe
from meristem.corpus.canaries.planting import CANARY_FILE, canary_record
from meristem.corpus.canaries.settings import CanarySettings
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.prepare import prepare_dataset
from meristem.trust.exposure.canary_exposure import CanaryExposure, summarize_levels
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.exposure_report import ExposureReport
from meristem.trust.exposure.run_exposure import measure_exposure

CELLS, PAGE = RESULTS / "trust", RESULTS / "exposure.md"
TEXT = "builtin:microworld-en?size=600"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "causal": ("gpt2-mini", {}),
    "masked": ("roberta-mini", {}),
}
ARMS = ("planted", "deduplicated", "control")
CAUSAL_ARMS = ("private", "overtrained")
"""Arms of the causal model only."""
EPSILON = 3.0
OVERTRAINED_TEXT = {"corpus.source": "builtin:pydocs", "corpus.limit": 20, "train.learning_rate": 2e-3}
OVERTRAINED_STEPS = 250
SIZE = {
    "model.layers": 2,
    "model.hidden_size": 128,
    "model.heads": 4,
    "model.max_length": 128,
    "tokenizer.vocab_size": 1000,
    "train.minutes": None,
    "train.batch_tokens": 2048,
    "train.evaluate_every": "none",
    "train.precision": "float32",
    "corpus.test": 0.0,
    "corpus.validation": 0.05,
    "corpus.processes": 1,
}
OPTIONS = ExposureOptions(candidates=200, controls=60, max_checkpoints=0, prefixes=40, samples=1, members=150)
QUIET = Console(quiet=True)


def canaries_of(seed: int) -> CanarySettings:
    """The canaries of a seed: four for each number of repeats."""
    return CanarySettings(formats=("en",), repeats=(1, 4, 16, 64, 256), per_repeat=4, seed=seed)


def corpus_settings(arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """The corpus of an arm."""
    if arm == "control":
        return {"corpus.source": TEXT}
    if arm == "overtrained":
        return OVERTRAINED_TEXT
    canaries = canaries_of(seed).model_dump(mode="json")
    if arm == "planted":
        return {"corpus.source": TEXT, "corpus.canaries": canaries}
    if arm == "private":
        privacy = {"train.privacy.epsilon": EPSILON, "train.privacy.noise_seed": seed}
        return {"corpus.source": TEXT, "corpus.canaries": canaries, **privacy}
    settings = CorpusSettings.model_validate({"source": TEXT, "validation": 0.05, "test": 0.0, "canaries": canaries})
    files = {name: (folder / f"{name}.jsonl").open("w", encoding="utf-8") for name in ("train", "validation")}
    for document in CorpusReader(settings):
        files[document.split].write(json.dumps({"text": document.text}) + "\n")
    for file in files.values():
        file.close()
    source, validation = (str(folder / f"{name}.jsonl") for name in files)
    return {"corpus.source": source, "corpus.validation": validation, "corpus.deduplicate": True}


def measure(kind: str, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one cell and measure its exposure."""
    recipe, own = MODELS[kind]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arm == "overtrained":
            steps = OVERTRAINED_STEPS
        settings = {**SIZE, **own, **corpus_settings(arm, seed, folder), "train.steps": steps, "train.seed": seed}
        run = folder / "run"
        api.pretrain(recipe, settings, out=run, console=QUIET)
        record: Path | None = None
        if arm != "overtrained":
            record = folder / CANARY_FILE
            record.write_text(canary_record({"main": canaries_of(seed)}), encoding="utf-8")
        report = measure_exposure(load_run(run), OPTIONS, QUIET, canary_path=record)
        false_matches = count_false_matches(report, run)
    return {
        "kind": kind,
        "arm": arm,
        "seed": seed,
        "steps": steps,
        "epochs": report.epochs,
        "canaries": [
            {"repeats": item.repeats, "bits": item.bits, "estimated": item.estimated, "extracted": item.extracted}
            for item in report.canaries
        ],
        "controls": [item.bits for item in report.controls],
        "fit_distance": [fit.distance for fit in report.fits],
        "extraction": [
            {"split": rate.split, "mode": rate.mode, "prefixes": rate.prefixes, "matches": rate.in_training_text}
            for item in report.extraction
            for rate in item.rates
        ],
        "extracted_texts": sum(len(item.extracted) for item in report.extraction),
        "false_matches": false_matches,
        "auc": [[item.by_loss.auc, *item.by_loss.auc_interval] for item in report.membership],
        "seconds": round(time.perf_counter() - started, 1),
        "torch": torch.__version__,
    }


def count_false_matches(report: ExposureReport, run: Path) -> int:
    """Reported extractions that are not in the decoded text of any training document, searched as strings."""
    loaded = load_run(run)
    assert isinstance(loaded.recipe, PretrainRecipe)
    (source,) = loaded.recipe.sources()
    key = loaded.run.shard_keys()[source.name]
    stream = prepare_dataset(
        source.corpus, loaded.tokenizer, loaded.recipe.dataset, keep_words=False, console=QUIET, cache_key=key
    ).dataset.split("train")
    spans = (stream.document(number) for number in range(stream.documents))
    texts = [loaded.tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist()) for span in spans]
    wanted = [text.continuation.strip() for item in report.extraction for text in item.extracted]
    return sum(not any(continuation in text for text in texts) for continuation in wanted)


def cell_path(kind: str, arm: str, seed: int) -> Path:
    """Where the result of a cell is kept."""
    return CELLS / f"exposure-{kind}--{arm}--{seed}.json"


def finished_cells(kind: str, arm: str) -> list[dict[str, Any]]:
    """The finished cells of one arm, by seed."""
    paths = sorted(CELLS.glob(f"exposure-{kind}--{arm}--*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def level_rows(cells: list[dict[str, Any]], kind: str, arm: str) -> Iterator[list[str]]:
    """Mean exposure and interval per number of repeats, over the canaries of all seeds; spread of the seeds' means."""
    controls = [bits for cell in cells for bits in cell["controls"]]
    yield [kind, arm, "never", str(len(controls)), *_mean_cells(controls, [cell["controls"] for cell in cells]), "–"]
    for repeats in sorted({item["repeats"] for cell in cells for item in cell["canaries"]}):
        items = [[item for item in cell["canaries"] if item["repeats"] == repeats] for cell in cells]
        by_seed = [[item["bits"] for item in group] for group in items]
        extracted = sum(bool(item["extracted"]) for group in items for item in group)
        bits = [value for group in by_seed for value in group]
        mean_cells = _mean_cells(bits, by_seed)
        yield [kind, arm, str(repeats), str(len(bits)), *mean_cells, f"{extracted} of {len(bits)}"]


def _mean_cells(bits: list[float], by_seed: list[list[float]]) -> list[str]:
    """Mean with its 95 % interval over texts, and the lowest and highest mean of a seed."""
    exposures = [
        CanaryExposure(text="", format="", repeats=0, logprob=0.0, bits=value, max_bits=64.0, rank=1, estimated=False)
        for value in bits
    ]
    (level,) = summarize_levels(exposures)
    means = [statistics.mean(group) for group in by_seed]
    return [
        f"{level.mean_bits:.2f} [{level.interval[0]:.2f}, {level.interval[1]:.2f}]",
        f"{min(means):.2f}–{max(means):.2f}",
    ]


def is_monotone(cells: list[dict[str, Any]]) -> bool:
    """Whether the mean over all seeds grows with every number of repeats."""
    bits: dict[int, list[float]] = {}
    for item in (item for cell in cells for item in cell["canaries"]):
        bits.setdefault(item["repeats"], []).append(item["bits"])
    means = [statistics.mean(values) for _, values in sorted(bits.items())]
    return bool(np.all(np.diff(means) > 0))


def extraction_rows(cells: list[dict[str, Any]], kind: str, arm: str) -> list[str]:
    """Matches of training and held-out prefixes over all seeds, and false ones."""
    counts = []
    for split in ("train", "held-out"):
        chosen = [
            row for cell in cells for row in cell["extraction"] if (row["split"], row["mode"]) == (split, "greedy")
        ]
        counts.append(f"{sum(row['matches'] for row in chosen)} of {sum(row['prefixes'] for row in chosen)}")
    aucs = [auc[0] for cell in cells for auc in cell["auc"]]
    shown = f"{statistics.mean(aucs):.3f} ({min(aucs):.3f}–{max(aucs):.3f})" if aucs else "–"
    texts, false = (sum(cell[name] for cell in cells) for name in ("extracted_texts", "false_matches"))
    return [kind, arm, str(len(cells)), *counts, f"{false} of {texts}", shown]


def page() -> str:
    """The page of all finished cells."""
    arms = [
        (kind, arm, cells) for kind in MODELS for arm in (*ARMS, *CAUSAL_ARMS) if (cells := finished_cells(kind, arm))
    ]
    with_canaries = [(kind, arm, cells) for kind, arm, cells in arms if arm != "overtrained"]
    steps = sorted({cell["steps"] for _, _, cells in with_canaries for cell in cells})
    planted = {kind: cells for kind, arm, cells in arms if arm == "planted"}
    monotone = ", ".join(f"{kind} {'yes' if is_monotone(cells) else 'no'}" for kind, cells in planted.items())
    finished = ", ".join(f"{len(cells)} of {kind} {arm}" for kind, arm, cells in arms) or "none"
    levels = [row for kind, arm, cells in with_canaries for row in level_rows(cells, kind, arm)]
    others = [extraction_rows(cells, kind, arm) for kind, arm, cells in arms]
    passes = statistics.mean(cell["epochs"] for _, _, cells in with_canaries for cell in cells)
    return f"""# Exposure of canaries

`python -m benchmarks.exposure`: {TEXT}, models of 2 layers × 128, {_joined(steps)} steps of 2,048
tokens (about {passes:.1f} passes over the text), one JSON file per cell in docs/results/trust. Canaries differ between
seeds, four per number of repeats and seed. Candidates per template:
{OPTIONS.candidates:,}. A text that the model never saw has 1.44 bits on average.

Finished cells: {finished}; the same command runs the others.

Does the mean grow with every number of repeats? {monotone}.

{table(["model", "arm", "repeats", "texts", "bits [95 % interval]", "means of the seeds", "extracted"], levels)}

In the arm deduplicated the copies stand in the file and `corpus.deduplicate` keeps one of each; in the arm control the
model never saw the canaries. The arm private is trained with ε = {EPSILON:g} for each document (`train.privacy`). A
canary that is planted 256 times is 256 documents, for which ε promises nothing: what protects it is the noise itself.

{private_line()}

## Verbatim extraction and membership inference

Greedy continuations that stand in the training text, of training and of held-out prefixes; reported texts that are not
in the decoded text of any training document (searched as strings, apart from the search over tokens); AUC of membership
inference by loss, mean (lowest–highest seed). {overtrained_line()}

{table(["model", "arm", "seeds", "training prefixes", "held-out prefixes", "false", "AUC"], others)}
"""


def overtrained_line() -> str:
    """What the arm overtrained is, if it has been measured."""
    cells = finished_cells("causal", "overtrained")
    if not cells:
        return "The arm overtrained has not been measured yet."
    epochs = statistics.mean(cell["epochs"] for cell in cells)
    return (
        f"The arm overtrained has read {OVERTRAINED_TEXT['corpus.limit']} documents of "
        f"`{OVERTRAINED_TEXT['corpus.source']}` {epochs:.0f} times, so that there is something to extract."
    )


def private_line() -> str:
    """Canaries of private models beside texts that were never planted."""
    cells = finished_cells("causal", "private")
    if not cells:
        return "The arm private has not been measured yet."
    controls = [bits for cell in cells for bits in cell["controls"]]
    canaries = [item["bits"] for cell in cells for item in cell["canaries"]]
    (never, _), (planted, _) = _mean_cells(controls, [controls]), _mean_cells(canaries, [canaries])
    most = max(item["repeats"] for cell in cells for item in cell["canaries"])
    repeated = [item["bits"] for cell in cells for item in cell["canaries"] if item["repeats"] == most]
    (highest, _) = _mean_cells(repeated, [repeated])
    return (
        f"At ε = {EPSILON:g}, {len(cells)} seeds: all canaries {planted} bits, those planted {most} times {highest}, "
        f"never planted {never}."
    )


def _joined(numbers: Iterable[int]) -> str:
    return " and ".join(f"{number:,}" for number in numbers)


def main() -> None:
    """Measure the cells that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--only", default=",".join(MODELS), help="causal, masked")
    parser.add_argument("--arms", default=",".join((*ARMS, *CAUSAL_ARMS)))
    options = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for arm in options.arms.split(","):
            for kind in options.only.split(","):
                path = cell_path(kind, arm, seed)
                if not path.is_file() and not (arm in CAUSAL_ARMS and kind != "causal"):
                    cell = measure(kind, arm, seed, options.steps)
                    path.write_text(json.dumps(cell, indent=1) + "\n", encoding="utf-8")
                    print(path.name, f"{cell['seconds']} s", flush=True)
                    PAGE.write_text(page(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    print(page())


if __name__ == "__main__":
    main()
