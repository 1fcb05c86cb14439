"""Sentences about baselines that a model does not beat."""

from __future__ import annotations

from meristem.finetune.task_reporting import baseline_notices


def test_baselines_that_are_not_beaten_are_named() -> None:
    baselines = {"always a": {"accuracy": 0.5}, "linear n-grams": {"accuracy": 0.8}, "empty": {"f1": 1.0}}
    assert baseline_notices("accuracy", {"accuracy": 0.8}, baselines) == [
        "accuracy 0.8000 does not beat linear n-grams, 0.8000"]  # fmt: skip
    assert baseline_notices("accuracy", {"accuracy": 0.8}, baselines, can_count=True) == [
        "accuracy 0.8000 does not beat linear n-grams, 0.8000; "
        "task.ngram_buckets=1048576 adds n-grams to the head"]  # fmt: skip
    assert baseline_notices("accuracy", {"accuracy": 0.9}, baselines) == []
    assert baseline_notices("loss", {"loss": 0.9}, baselines) == []
