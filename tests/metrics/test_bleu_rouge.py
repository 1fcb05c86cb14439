"""BLEU, chrF and ROUGE, against sacrebleu and rouge_score."""

from __future__ import annotations

import time

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.data.text_units import main_script, split_words
from meristem.metrics import bleu_rouge
from meristem.metrics.bootstrap import confidence_intervals

GOLDS = [["The cat sat on the mat, quietly."], ["A dog ran through the park."], ["It rains again in the north today."]]
SAID = ["The cat sat on a mat quietly.", "A dog ran through a green park.", "It rains in the north."]
CHINESE = [["我们今天下午去公园散步。"], ["他在图书馆里看书。"]]
CHINESE_SAID = ["我们今天去公园散步。", "他在家里看书。"]


def test_bleu_and_chrf_are_sacrebleus() -> None:
    from sacrebleu import corpus_bleu, corpus_chrf

    streams = [[gold[0] for gold in GOLDS]]
    metrics = bleu_rouge.translation_metrics(GOLDS, SAID)
    assert metrics == {"bleu": corpus_bleu(SAID, streams).score, "chrf": corpus_chrf(SAID, streams).score}


def test_several_references_that_differ_in_number() -> None:
    from sacrebleu import corpus_bleu

    golds = [[*GOLDS[0], "The cat sat on a mat quietly."], GOLDS[1], GOLDS[2]]
    streams = [[gold[0] for gold in golds], [golds[0][1], None, None]]
    assert bleu_rouge.translation_metrics(golds, SAID)["bleu"] == corpus_bleu(SAID, streams).score
    assert bleu_rouge.translation_metrics(golds, SAID)["bleu"] > bleu_rouge.translation_metrics(GOLDS, SAID)["bleu"]
    assert "nrefs:var" in bleu_rouge.sacrebleu_signature(golds)


def test_chinese_is_cut_into_characters() -> None:
    from sacrebleu import corpus_bleu

    streams = [[gold[0] for gold in CHINESE]]
    bleu = bleu_rouge.translation_metrics(CHINESE, CHINESE_SAID)["bleu"]
    assert bleu == corpus_bleu(CHINESE_SAID, streams, tokenize="zh").score > 30
    assert "tok:zh" in bleu_rouge.sacrebleu_signature(CHINESE)


def test_the_signature_is_what_people_cite() -> None:
    from sacrebleu import __version__

    bleu, chrf = bleu_rouge.sacrebleu_signature(GOLDS).split("  ")
    assert bleu == f"BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{__version__}"
    assert chrf == f"chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{__version__}"


def test_rouge_is_rouge_scores_with_its_stemmer() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    names = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(names, use_stemmer=True)
    metrics = bleu_rouge.rouge_metrics(GOLDS, SAID)
    for name in names:
        fmeasures = [
            scorer.score(gold[0], prediction)[name].fmeasure for gold, prediction in zip(GOLDS, SAID, strict=True)
        ]
        assert metrics[name] == pytest.approx(np.mean(fmeasures), abs=1e-12)
    assert bleu_rouge.rouge_metrics([["she runs"]], ["she running"])["rouge1"] == 1.0


def test_rouge_lsum_goes_by_sentences() -> None:
    golds, predictions = [["The dog barked. The cat slept."]], ["The cat slept. The dog barked."]
    metrics = bleu_rouge.rouge_metrics(golds, predictions)
    assert metrics["rougeL"] < 1.0
    assert metrics["rougeLsum"] == 1.0


def test_rouge_of_other_scripts() -> None:
    chinese = bleu_rouge.rouge_metrics([["北京大学"]], ["北京"])
    assert chinese["rouge1"] == pytest.approx(2 / 3)
    assert chinese["rouge2"] == pytest.approx(0.5)
    german = bleu_rouge.rouge_metrics(
        [["schöne Grüße über Öl"]], ["schöne Grüße"]
    )  # rouge_score's own keeps sch, ne, gr, e
    assert german["rouge1"] == pytest.approx(2 / 3)


def test_the_most_similar_reference_counts() -> None:
    assert bleu_rouge.rouge_metrics([["nothing alike", "a red fox"]], ["a red fox"])["rouge2"] == 1.0


def test_empty_texts_are_counted() -> None:
    assert bleu_rouge.translation_metrics(GOLDS, ["", "", ""]) == {"bleu": 0.0, "chrf": 0.0}
    assert bleu_rouge.rouge_metrics(GOLDS, ["", "", ""])["rougeLsum"] == 0.0


def test_texts_without_references_are_refused() -> None:
    with pytest.raises(MeristemError, match="none of which may be empty"):
        bleu_rouge.translation_metrics([["a"], []], ["a", "b"])


@pytest.mark.parametrize("kind", ["translation", "summary"])
def test_resampled_metrics_are_exact_and_fast(kind: str) -> None:
    rng = np.random.default_rng(0)
    vocabulary, size = ["the", "red", "fox", "and", "a", "blue", "dog", "home"], 300
    golds = [[" ".join(rng.choice(vocabulary, 6)) for _ in range(number)] for number in rng.integers(1, 3, size)]
    predictions = [" ".join(rng.choice(vocabulary, 8)) for _ in range(size)]
    score, resampled = {
        "translation": (bleu_rouge.translation_metrics, bleu_rouge.translation_resampler),
        "summary": (bleu_rouge.rouge_metrics, bleu_rouge.rouge_resampler),
    }[kind]
    measure = resampled(golds, predictions)
    assert measure(np.arange(size)) == score(golds, predictions)
    sample_indices = rng.integers(0, size, size)
    assert measure(sample_indices) == pytest.approx(
        score([golds[i] for i in sample_indices], [predictions[i] for i in sample_indices]), abs=1e-9
    )
    start = time.process_time()
    confidence_intervals(measure, size)
    assert time.process_time() - start < 3  # a fifth of a second here; scoring a thousand sets anew takes minutes


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("plain words", "latin"),
        ("naïve", "other"),
        ("Это текст", "other"),
        ("这是 BERT 模型", "han"),
        ("the word 模型 in a sentence", "other"),
        ("这是一个模型 GPU", "han"),
        ("これは日本語です", "kana"),
        ("", "latin"),
    ],
)
def test_scripts(text: str, kind: str) -> None:
    assert main_script([text]) == kind


def test_words_of_mixed_scripts() -> None:
    assert split_words("用GPT写 two 句") == ["用", "GPT", "写", "two", "句"]
