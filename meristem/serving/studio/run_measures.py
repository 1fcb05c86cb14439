"""The main metric of each run, its latest value, and whether higher or lower is better."""

from __future__ import annotations

from typing import Any

from meristem.serving.studio.metrics_tail import MetricsTail, finite_numbers

LOWER_IS_BETTER = frozenset({"loss", "perplexity", "bits_per_byte", "kl", "error", "ece", "brier"})
HIGHER_IS_BETTER = frozenset(
    {"accuracy", "f1", "f1_macro", "f1_micro", "macro_f1", "micro_f1", "precision", "recall", "exact", "exact_match",
     "em", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "rouge_l", "top1", "top5", "reward", "leashed", "mcc",
     "pearson", "spearman", "mrr", "slot_f1", "intent_accuracy"}
)  # fmt: skip
TASK_METRICS = ("f1", "exact", "accuracy", "f1_micro", "spearman")
"""Metrics that tasks select their best checkpoint by, in order of preference."""
GENERATION_METRICS = ("bleu", "rougeL", "rouge_l", "chrf")
"""Metrics of generated texts; computed once, on the test samples."""


def run_measure(kind: str, finished: dict[str, Any] | None, tail: MetricsTail) -> dict[str, Any] | None:
    """Name, split, value and direction of a run's main metric; None before the first measurement."""
    record = finished or {}
    splits = {
        "validation": finite_numbers(record.get("validation")) or tail.evaluation,
        "test": finite_numbers(record.get("test")),
    }
    for split, name in _candidates(kind, str(record.get("judged_by", "")), splits["test"]):
        if name in splits[split]:
            return {"name": name, "split": split, "value": splits[split][name], "lower": name in LOWER_IS_BETTER}
    return None if tail.loss is None else {"name": "loss", "split": "train", "value": tail.loss, "lower": True}


def _candidates(kind: str, judged_by: str, test: dict[str, float]) -> list[tuple[str, str]]:
    """(split, metric name) in order of preference."""
    if kind == "rewards":
        return [("validation", "reward")]
    if kind != "tasks":
        return [("validation", "loss")]
    if judged_by == "loss":
        metrics = ("perplexity",) if "distinct1" in test else GENERATION_METRICS  # a dialogue has no one right reply
        return [*(("test", name) for name in metrics), ("validation", "loss")]
    return [("validation", name) for name in (judged_by, *TASK_METRICS, "loss")]
