"""The measure that each run is judged by, its latest value, and whether higher or lower is better."""

from __future__ import annotations

from typing import Any

from meristem.serving.studio.metrics_tail import MetricsTail, finite_numbers

LOWER = frozenset({"loss", "perplexity", "bits_per_byte", "kl", "error", "ece", "brier"})
HIGHER = frozenset(
    {"accuracy", "f1", "f1_macro", "f1_micro", "macro_f1", "micro_f1", "precision", "recall", "exact", "exact_match",
     "em", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "rouge_l", "top1", "top5", "reward", "leashed", "mcc",
     "pearson", "spearman", "mrr", "slot_f1", "intent_accuracy"}
)  # fmt: skip
TASKS = ("f1", "exact", "accuracy", "f1_micro", "spearman")
"""What tasks choose their best checkpoint by; where an evaluation has several of them, the first."""
WRITING = ("bleu", "rougeL", "rouge_l", "chrf")
"""What written texts are cited with; measured once, on the test samples."""


def measure_of(kind: str, finished: dict[str, Any] | None, tail: MetricsTail) -> dict[str, Any] | None:
    """Name, split, value and direction of a run's own measure; None before anything was measured."""
    facts = finished or {}
    splits = {
        "validation": finite_numbers(facts.get("validation")) or tail.evaluation,
        "test": finite_numbers(facts.get("test")),
    }
    for split, name in _candidates(kind, str(facts.get("judged_by", "")), splits["test"]):
        if name in splits[split]:
            return {"name": name, "split": split, "value": splits[split][name], "lower": name in LOWER}
    return None if tail.loss is None else {"name": "loss", "split": "train", "value": tail.loss, "lower": True}


def _candidates(kind: str, judged_by: str, test: dict[str, float]) -> list[tuple[str, str]]:
    """(split, name) by preference."""
    if kind == "rewards":
        return [("validation", "reward")]
    if kind != "tasks":
        return [("validation", "loss")]
    if judged_by == "loss":
        cited = ("perplexity",) if "distinct1" in test else WRITING  # a dialogue has no one right reply
        return [*(("test", name) for name in cited), ("validation", "loss")]
    return [("validation", name) for name in (judged_by, *TASKS, "loss")]
