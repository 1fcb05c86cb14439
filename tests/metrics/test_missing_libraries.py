"""A missing library is reported with the pip line that installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.metrics import bleu_rouge, classification, entity_f1, squad_f1


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("sklearn", lambda: classification.single_label_metrics(["a"], ["a"], ["a"])),
        ("scipy", lambda: classification.regression_metrics([1.0, 2.0], [1.0, 2.0])),
        ("seqeval.metrics.sequence_labeling", lambda: entity_f1.score([["B-A"]], [["B-A"]])),
        ("sacrebleu.metrics.bleu", lambda: bleu_rouge.translation_metrics([["a"]], ["a"])),
        ("rouge_score.rouge_scorer", lambda: bleu_rouge.rouge_metrics([["a"]], ["a"])),
    ],
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, library: str, call: Callable[[], Any]) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MeristemError, match=r'pip install "meristem-lm\[metrics\]"'):
        call()


def test_answers_from_a_passage_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("sklearn", "scipy", "seqeval", "sacrebleu", "rouge_score"):
        monkeypatch.setitem(sys.modules, library, None)
    assert squad_f1.score([["a fox"]], ["fox"])["exact"] == 1.0
