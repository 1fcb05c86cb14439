"""The numbers of trust in one table: what was to be reached, what was measured, and the command that measured it.

    python -m benchmarks.trust

Reads the cells that the other benchmarks have left in docs/results/trust, trains nothing, and writes
docs/results/trust.md. A cell that is missing is said to be missing.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import exposure, federated, label_noise, planted_continuations, privacy, robustness
from benchmarks.side_by_side import RESULTS, table

PAGE = RESULTS / "trust.md"
MISSING = "not measured yet"
Row = list[str]


def _bits(cells: Sequence[dict[str, Any]], repeats: int | None) -> str:
    """Mean exposure over all seeds of the canaries with so many repeats, or of the texts that were never planted."""
    values = [
        bits
        for cell in cells
        for bits in (
            cell["controls"]
            if repeats is None
            else [item["bits"] for item in cell["canaries"] if item["repeats"] == repeats]
        )
    ]
    return f"{statistics.mean(values):.1f}" if values else "–"


def exposure_rows() -> Iterator[Row]:
    """Canaries by repeats, what lowers their exposure, and extraction."""
    command = "`python -m benchmarks.exposure`"
    for kind in exposure.MODELS:
        planted = exposure.finished_cells(kind, "planted")
        levels = ", ".join(_bits(planted, repeats) for repeats in (1, 4, 16, 64, 256))
        grows = "yes" if planted and exposure.is_monotone(planted) else "no"
        yield [
            f"exposure of canaries planted 1, 4, 16, 64, 256 times, {kind}", "monotone; never seen: 1.44 bits",
            f"{levels} bits, monotone: {grows}; never seen {_bits(planted, None)} ({len(planted)} seeds)", command,
        ]  # fmt: skip
        removed = exposure.finished_cells(kind, "deduplicated")
        yield [
            f"the same after deduplication, 256 copies, {kind}", "lower",
            f"{_bits(planted, 256)} → {_bits(removed, 256)} bits ({len(removed)} seeds)", command,
        ]  # fmt: skip
    private = exposure.finished_cells("causal", "private")
    measured = f"256 times {_bits(private, 256)}, never {_bits(private, None)} bits ({len(private)} seeds)"
    yield ["canaries at ε = 3, causal", "as never seen, within the spread", measured if private else MISSING, command]
    cells = [
        cell
        for kind in exposure.MODELS
        for arm in (*exposure.ARMS, *exposure.CAUSAL_ARMS)
        for cell in exposure.finished_cells(kind, arm)
    ]
    texts, false = (sum(cell[name] for cell in cells) for name in ("extracted_texts", "false_matches"))
    yield ["extraction: reported texts that are not in the corpus", "0", f"{false} of {texts}", command]


def privacy_rows() -> Iterator[Row]:
    """Gradients, what a step costs, and quality at each ε."""
    yield [
        "gradients against an exact per-sample reference", "≤ 1e-6 relative in float64",
        "asserted by the test, not measured here", "`pytest tests/learning/test_private_gradients.py`",
    ]  # fmt: skip
    yield [
        "logged ε against dp-accounting",
        "≤ 1e-9",
        "asserted by the test, not measured here",
        "`pytest tests/training/test_private_training.py`",
    ]
    for path in sorted(privacy.CELLS.glob("privacy-cost--*.json")):
        cost = json.loads(path.read_text(encoding="utf-8"))
        factor = cost["seconds"]["ghost"] / cost["seconds"]["plain"]
        command = "`python -m benchmarks.privacy cost`"
        yield [f"private step, {cost['model']}", "≤ 2.5 × the plain one", f"{factor:.2f} ×", command]
    for kind, (measure, label) in privacy.MEASURES.items():
        found = []
        for epsilon in privacy.EPSILONS:
            paths = sorted(privacy.CELLS.glob(f"privacy--{kind}--{epsilon}--*.json"))
            values = [json.loads(path.read_text(encoding="utf-8"))["test"][measure] for path in paths]
            name = "∞" if epsilon == "inf" else epsilon
            seeds = f" ({len(values)} seed{'s' * (len(values) != 1)})"
            found.append(f"ε {name}: {statistics.mean(values):.3f}{seeds}" if values else f"ε {name}: {MISSING}")
        yield [f"{label} of {kind} at each ε", "a curve", "; ".join(found), "`python -m benchmarks.privacy curve`"]


def federated_rows() -> Iterator[Row]:
    """Federated beside pooled training of as many steps and tokens."""
    cells = federated.read_cells()
    for row in federated.rows(cells):
        split, arm, seeds, _, over_steps, over_batch, _ = row
        if arm in federated.FEDERATED:
            yield [
                f"{arm}, 20 clients, 30 % drop out, {split} split", "within 5 % of pooled" if split == "even" else "–",
                f"{over_steps} with as many steps, {over_batch} against small batches ({seeds} seeds)",
                "`python -m benchmarks.federated`",
            ]  # fmt: skip


def robustness_rows() -> Iterator[Row]:
    """Loss under noise, and what noise in training wins back."""
    for name in robustness.DATA_SETS:
        clean = {cell["seed"]: cell for cell in robustness.read_cells(name, robustness.BASE)}
        noisy = {cell["seed"]: cell for cell in robustness.read_cells(name, "augmented")}
        pairs = [(clean[seed], noisy[seed]) for seed in sorted(clean.keys() & noisy.keys())]
        measured = MISSING
        if pairs:
            lost = statistics.mean(robustness.mean_drop(cell) for cell, _ in pairs)
            gained = statistics.mean(robustness.noisy_mean(b) - robustness.noisy_mean(a) for a, b in pairs)
            cost = statistics.mean(a["clean"] - b["clean"] for a, b in pairs)
            measured = (
                f"{100 * gained / lost:.0f} % at {100 * cost:.1f} points ({len(pairs)} seed{'s' * (len(pairs) != 1)})"
            )
        yield [
            f"noise in training, {name}", "half of the loss won back at ≤ 1 point on clean text", measured,
            "`python -m benchmarks.robustness ../shared/data`",
        ]  # fmt: skip


def data_rows() -> Iterator[Row]:
    """Label noise and planted text."""
    command = "`python -m benchmarks.label_noise ../shared/data`"
    for name, title in (("label-noise", "5 % flipped labels, SST-2"), ("tag-noise", "5 % wrong tags, UD POS")):
        cells = label_noise.read_cells(name)
        values = [cell["precision_at_recall"]["0.5"] for cell in cells]
        measured = f"{statistics.mean(values):.3f} ({len(values)} seeds)" if values else MISSING
        goal = "≥ 0.6" if name == "label-noise" else "–"
        yield [f"precision at recall 0.5, {title}", goal, measured, command]
    for corpus in planted_continuations.CORPORA:
        clean = planted_continuations.read_cell(corpus, planted_continuations.CLEAN)
        measured = f"{len(clean['found'])} in {clean['words']:,} words" if clean else MISSING
        command = "`python -m benchmarks.planted_continuations ../shared/data`"
        yield [f"false alarms of planted continuations, {corpus}", "few", measured, command]


def main() -> None:
    """Write the page."""
    rows = [*exposure_rows(), *privacy_rows(), *federated_rows(), *robustness_rows(), *data_rows()]
    lines = [
        "# Trust",
        "",
        "What was to be reached and what was measured, from the cells in [trust](trust): `python -m benchmarks.trust`.",
        "All models are small; [trust](../trust.md) says what each number means and does not mean. Details:",
        "[exposure](exposure.md), [privacy](privacy.md), [federated](federated.md), [robustness](robustness.md),",
        "[label noise](label-noise.md), [planted continuations](planted-continuations.md).",
        "",
        *table(["what", "to reach", "measured", "command"], rows).splitlines(),
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
