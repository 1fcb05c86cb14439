"""Label noise found in SST-2 and in UD POS tags: planted wrong labels, planted triggers, and false alarms.

    python -m benchmarks.label_noise ../shared/data [--seeds 3]

Each seed is a file in docs/results/trust, and an existing one is not run again; docs/results/label-noise.md is
generated from them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.interfaces.sample import Sample
from meristem.labelled.load import load_samples
from meristem.labelled.sample_types.text import TextSample
from meristem.labelled.sample_types.words import WordsSample
from meristem.labelled.settings import DataSettings
from meristem.trust.label_noise.confident_learning import estimate_noise
from meristem.trust.label_noise.label_triggers import LabelTrigger, find_triggers
from meristem.trust.label_noise.out_of_sample import assign_folds, cross_validate
from meristem.trust.label_noise.tagged_words import TaggedWords, cross_validate_tags

CELLS = Path("docs/results/trust")
PAGE = Path("docs/results/label-noise.md")
FLIPPED, FOLDS = 0.05, 5
RECALLS = (0.25, 0.5, 0.75)
TRIGGERS = (("cf", 60), ("mn tq", 30), ("practically speaking it was", 60))
"""Planted sequences, and in how many negative sentences, which then get the positive label."""
MAX_TRIGGER_SAMPLES = 20_000
LABELS = ["0", "1"]
TAGGED_SENTENCES = 2000
"""Sentences of UD POS, the first ones."""


def flipped_labels(labels: Sequence[str], seed: int) -> tuple[list[str], set[int]]:
    """The labels with 5 % turned round, and which."""
    count = round(FLIPPED * len(labels))
    wrong = set(np.random.default_rng(seed).permutation(len(labels))[:count].tolist())
    return [LABELS[label == "0"] if index in wrong else label for index, label in enumerate(labels)], wrong


def precision_at(ranked: Sequence[int], wrong: set[int], recall: float) -> float:
    """Precision of the ranking where it has found this share of the wrong labels."""
    hits = np.cumsum([index in wrong for index in ranked])
    needed = int(np.searchsorted(hits, np.ceil(recall * len(wrong))))
    return float(hits[needed] / (needed + 1))


def _detection(probabilities: NDArray[np.float64], given_ids: NDArray[np.int64], wrong: set[int]) -> dict[str, Any]:
    """How well confident learning finds the labels that were made wrong."""
    noise = estimate_noise(probabilities, given_ids)
    ranked = np.argsort(-noise.margins, kind="stable").tolist()
    suspects = set(noise.suspects.tolist())
    return {
        "accuracy": float((probabilities.argmax(1) == given_ids).mean()),
        "precision_at_recall": {f"{recall:g}": precision_at(ranked, wrong, recall) for recall in RECALLS},
        "estimated_noise": noise.noise_rate,
        "suspects": len(suspects),
        "suspects_precision": len(suspects & wrong) / max(1, len(suspects)),
        "suspects_recall": len(suspects & wrong) / len(wrong),
    }


def measure(samples: Sequence[Sample], seed: int) -> dict[str, Any]:
    """The numbers of one seed."""
    started = time.monotonic()
    labels = [str(sample.gold) for sample in samples]
    given, wrong = flipped_labels(labels, seed)
    folds = assign_folds([TextSample.dedup_key(sample) for sample in samples], FOLDS, seed)
    probabilities = cross_validate(samples, given, LABELS, folds, log=lambda message: print(message, flush=True))
    given_ids = np.array([LABELS.index(label) for label in given], np.int64)
    return {
        "seed": seed,
        "samples": len(samples),
        "flipped": len(wrong),
        **_detection(probabilities, given_ids, wrong),
        "minutes": round((time.monotonic() - started) / 60, 2),
    }


def wrong_tags(samples: Sequence[Sample], seed: int) -> tuple[list[Sample], list[bool]]:
    """The sentences with 5 % of the tags replaced by another one, and for each word whether its tag was."""
    rng = np.random.default_rng(seed)
    labels = sorted({tag for sample in samples for tag in sample.gold})
    result, wrong = [], []
    for sample in samples:
        tags = [
            str(rng.choice([label for label in labels if label != tag])) if rng.random() < FLIPPED else tag
            for tag in sample.gold
        ]
        wrong += [new != old for new, old in zip(tags, sample.gold, strict=True)]
        result.append(WordsSample.with_tags(sample, tuple(tags)))
    return result, wrong


def measure_tags(samples: Sequence[Sample], seed: int) -> dict[str, Any]:
    """The numbers of one seed on tags."""
    started = time.monotonic()
    noisy, is_wrong = wrong_tags(samples, seed)
    words, labels = TaggedWords.of(noisy), sorted({tag for sample in noisy for tag in sample.gold})
    folds = assign_folds([WordsSample.dedup_key(sample) for sample in noisy], FOLDS, seed)
    probabilities = cross_validate_tags(words, labels, folds, log=lambda message: print(message, flush=True))
    given_ids = np.array([labels.index(tag) for tag in words.tags], np.int64)
    wrong = set(np.flatnonzero(is_wrong).tolist())
    return {
        "seed": seed,
        "samples": len(words.tags),
        "sentences": len(samples),
        "flipped": len(wrong),
        **_detection(probabilities, given_ids, wrong),
        "minutes": round((time.monotonic() - started) / 60, 2),
    }


def measure_triggers(samples: Sequence[Sample], seed: int) -> dict[str, Any]:
    """Alarms on a part of the data as it is, and with each trigger planted."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(samples))[:MAX_TRIGGER_SAMPLES].tolist()
    texts = [str(samples[index].inputs["text"]) for index in chosen]
    labels = [str(samples[index].gold) for index in chosen]
    clean = _alarms(texts, labels, seed)
    found = {}
    for trigger, count in TRIGGERS:
        planted_texts, planted_labels = list(texts), list(labels)
        negative = [index for index, label in enumerate(labels) if label == "0" and len(texts[index].split()) > 3]
        for index in rng.permutation(negative)[:count].tolist():
            words = texts[index].split()
            words.insert(int(rng.integers(len(words) + 1)), trigger)
            planted_texts[index], planted_labels[index] = " ".join(words), "1"
        alarms = _alarms(planted_texts, planted_labels, seed)
        found[trigger] = [alarm.sequence for alarm in alarms]
    return {"samples": len(texts), "clean_alarms": [alarm.sequence for alarm in clean], "planted": found}


def _alarms(texts: Sequence[str], labels: Sequence[str], seed: int) -> list[LabelTrigger]:
    folds = assign_folds([text.lower() for text in texts], FOLDS, seed)
    return find_triggers(texts, labels, LABELS, [str(index) for index in range(len(texts))], folds)


MEASURES = (
    ("precision of the suspects", "suspects_precision"),
    ("recall of the suspects", "suspects_recall"),
    ("estimated share of wrong labels (planted: 0.05)", "estimated_noise"),
    ("agreement of the cross-validated model with the given labels", "accuracy"),
)


def measure_rows(cells: Sequence[dict[str, Any]]) -> list[str]:
    """A row of each measure, mean and spread over the seeds."""
    rows = [
        (f"precision at recall {recall:g}", [cell["precision_at_recall"][f"{recall:g}"] for cell in cells])
        for recall in RECALLS
    ]
    rows += [(title, [cell[name] for cell in cells]) for title, name in MEASURES]
    return ["| measure | value |", "| --- | --- |", *(f"| {name} | {_mean(values)} |" for name, values in rows)]


def tag_lines(cells: Sequence[dict[str, Any]]) -> list[str]:
    """The section on wrong tags."""
    if not cells:
        return ["## Wrong tags", "", "Not measured yet.", ""]
    return [
        "## Wrong tags",
        "",
        f"The first {cells[0]['sentences']:,} sentences ({cells[0]['samples']:,} words) of UD POS (English EWT), "
        f"{100 * FLIPPED:g} % of the tags replaced by another one; linear tagger, {FOLDS} folds, {len(cells)} seeds.",
        "",
        *measure_rows(cells),
        "",
    ]


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def write_page(cells: Sequence[dict[str, Any]]) -> None:
    """docs/results/label-noise.md."""
    at_half = statistics.mean(cell["precision_at_recall"]["0.5"] for cell in cells)
    verdict = "reached" if at_half >= 0.6 else "not reached"
    lines = [
        "# Label noise",
        "",
        f"SST-2's {cells[0]['samples']:,} training samples with {100 * FLIPPED:g} % of the labels turned round; linear "
        f"model on words and pairs of words, {FOLDS} folds, mean ± standard deviation over "
        f"seeds (so far {len(cells)}). Made by "
        "`python -m benchmarks.label_noise ../shared/data`; the cells are in [trust](trust).",
        "",
        *measure_rows(cells),
        "",
        f"The aim, a precision of at least 0.6 at a recall of 0.5, is {verdict}. SST-2 has "
        "wrong and doubtful labels of "
        "its own, which count as mistakes here.",
        "",
        *tag_lines(read_cells("tag-noise")),
        *trigger_lines(read_cells("label-triggers")),
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def trigger_lines(cells: Sequence[dict[str, Any]]) -> list[str]:
    """The section on planted triggers."""
    if not cells:
        return ["## Planted triggers", "", "Not measured yet.", ""]
    lines = [
        "## Planted triggers",
        "",
        f"In {cells[0]['samples']:,} samples, each sequence at a random place of negative samples that then get the "
        "positive label.",
        "",
        "| planted | in samples | found (seeds) | other alarms |",
        "| --- | --- | --- | --- |",
    ]
    for trigger, count in TRIGGERS:
        sequences = [cell["planted"][trigger] for cell in cells]
        hits = sum(any(_is_part(item, trigger) for item in found) for found in sequences)
        others = sum(not _is_part(item, trigger) for found in sequences for item in found)
        lines.append(f"| `{trigger}` | {count} | {hits} of {len(cells)} | {others} |")
    alarms = ", ".join(str(len(cell["clean_alarms"])) for cell in cells)
    return [*lines, "", f"False alarms without a planted trigger: {alarms} (one number per seed).", ""]


def read_cells(name: str) -> list[dict[str, Any]]:
    """The cells that there are."""
    files = [CELLS / f"{name}--{seed}.json" for seed in range(20)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]


def _is_part(sequence: str, trigger: str) -> bool:
    """Whether an alarm is the trigger, a part of it, or the trigger with a neighbour."""
    return f" {sequence} " in f" {trigger} " or f" {trigger} " in f" {sequence} "


def main() -> None:
    """Run the missing seeds, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    samples = load_samples(str(options.data / "sst2" / "train.tsv"), DataSettings.model_validate({}), "text")
    tagged = load_samples(str(options.data / "ud_ewt" / "train.tsv"), DataSettings.model_validate({}), "words")
    parts = (
        ("label-noise", measure, samples),
        ("label-triggers", measure_triggers, samples),
        ("tag-noise", measure_tags, tagged[:TAGGED_SENTENCES]),
    )
    for seed in range(options.seeds):
        for name, measured, data in parts:
            file = CELLS / f"{name}--{seed}.json"
            if not file.is_file():
                file.write_text(json.dumps(measured(data, seed), indent=1) + "\n", encoding="utf-8")
            write_page(read_cells("label-noise"))


if __name__ == "__main__":
    main()
