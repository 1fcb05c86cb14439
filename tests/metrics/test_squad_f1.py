"""SQuAD metrics, against SQuAD's own script."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.metrics import squad_f1
from meristem.metrics.bootstrap import confidence_intervals

texts = st.lists(st.sampled_from([*"abthe AnT.,'-$é \u00a0", "the ", " a ", " an "]), max_size=14).map("".join)


@pytest.fixture(scope="module")
def squad() -> Any:
    """SQuAD's own functions, as the evaluation harness carries them."""
    module_spec = importlib.util.find_spec("lm_eval")
    if module_spec is None or module_spec.origin is None:
        pytest.skip('needs lm-eval: pip install "meristem-lm[eval]"')
    metrics_path = Path(module_spec.origin).parent / "tasks" / "qasper" / "metrics.py"
    spec = importlib.util.spec_from_file_location("squad", metrics_path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@settings(max_examples=150, deadline=None)
@given(texts, texts)
def test_as_squad_counts(squad: Any, gold: str, prediction: str) -> None:
    golds, answers = squad.normalize_answer(gold), squad.normalize_answer(prediction)
    assert squad_f1.normalize_answer(gold) == golds
    exact = float(golds == answers)
    # version 2 of its script: where one of both is empty, F1 is whether both are
    f1 = squad.f1_abstractive([prediction], [gold]) if golds and answers else exact
    assert squad_f1.exact_and_f1(gold, prediction) == (exact, f1)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Eiffel  Tower.", "eiffel tower"),
        ("a cat, an owl", "cat owl"),
        ("theatre", "theatre"),
        ("rock-'n'-roll", "rocknroll"),
        ("the", ""),
        ("北京大学。", "北 京 大 学"),
        ("《红楼梦》 (1791年)", "红 楼 梦 1791 年"),
        ("東京タワー", "東 京 タ ワ ー"),
    ],
)
def test_normalised(text: str, normal: str) -> None:
    assert squad_f1.normalize_answer(text) == normal


def test_the_best_gold_counts() -> None:
    assert squad_f1.score([["the red fox", "a fox"]], ["Fox!"]) == {"exact": 1.0, "f1": 1.0}


def test_chinese_by_characters() -> None:
    metrics = squad_f1.score([["北京大学"]], ["北京"])
    assert metrics == pytest.approx({"exact": 0.0, "f1": 2 / 3})


def test_words_in_common_are_counted_as_often_as_both_have_them() -> None:
    assert squad_f1.exact_and_f1("no no no", "no yes")[1] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))


def test_questions_without_an_answer() -> None:
    metrics = squad_f1.score([["fox"], [], [], ["dog"]], ["fox", "", "cat", ""])
    assert metrics == {"exact": 0.5, "f1": 0.5, "has_answer_f1": 0.5, "no_answer_accuracy": 0.5}
    assert "no_answer_accuracy" not in squad_f1.score([["fox"]], ["fox"])


def test_no_answer_is_a_baseline() -> None:
    assert squad_f1.baselines([["fox"], []])["no answer to anything"]["f1"] == 0.5


def test_resampled_metrics_are_exact_and_fast() -> None:
    rng = np.random.default_rng(0)
    words = ["the", "red", "fox", "and", "a", "blue", "dog", "home"]
    golds = [[" ".join(rng.choice(words, 3)) for _ in range(number)] for number in rng.integers(0, 3, 10_000)]
    predictions = [" ".join(rng.choice(words, number)) for number in rng.integers(0, 3, 10_000)]
    measure = squad_f1.resampler(golds, predictions)
    assert measure(np.arange(10_000)) == squad_f1.score(golds, predictions)
    sample_indices = rng.integers(0, 10_000, 10_000)
    picked = squad_f1.score([golds[i] for i in sample_indices], [predictions[i] for i in sample_indices])
    assert measure(sample_indices) == pytest.approx(picked, abs=1e-12)
    start = time.process_time()
    confidence_intervals(measure, 10_000)
    assert time.process_time() - start < 4  # a fifth of a second here
