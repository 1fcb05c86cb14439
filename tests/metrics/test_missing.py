"""A library that is not installed is named with the line that installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from meristem.errors import MeristemError
from meristem.metrics import entities, labels, spans, writing


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("sklearn", lambda: labels.single(["a"], ["a"], ["a"])),
        ("scipy", lambda: labels.numbers([1.0, 2.0], [1.0, 2.0])),
        ("seqeval.metrics.sequence_labeling", lambda: entities.score([["B-A"]], [["B-A"]])),
        ("sacrebleu.metrics.bleu", lambda: writing.translation([["a"]], ["a"])),
        ("rouge_score.rouge_scorer", lambda: writing.summary([["a"]], ["a"])),
    ],
)
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, library: str, call: Callable[[], Any]) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MeristemError, match=r'pip install "meristem\[metrics\]"'):
        call()


def test_answers_from_a_passage_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("sklearn", "scipy", "seqeval", "sacrebleu", "rouge_score"):
        monkeypatch.setitem(sys.modules, library, None)
    assert spans.score([["a fox"]], ["fox"])["exact"] == 1.0
