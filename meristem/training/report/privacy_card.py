"""Section of a model card on private training: the guarantee, and what it does not cover."""

from __future__ import annotations

from meristem.training.privacy.record import PrivacyRecord


def privacy_card_lines(record: PrivacyRecord) -> list[str]:
    """The section, as lines before the numbers."""
    data = ", ".join(f"`{name}`" for name in record.data) or "the training data"
    return [
        "## Privacy",
        "",
        f"Trained with differential privacy (DP-SGD): {record.describe()} of {data}, added or removed.",
        "",
        "Not covered: validation and test data, which choose checkpoints; the vocabulary of a tokenizer trained on the "
        "same text, labels and other choices made from the data; other runs on the same data, whose budgets add up; "
        "and the files log.txt and metrics.jsonl. A text that stands in several documents is protected less.",
        "",
    ]
