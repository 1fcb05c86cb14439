"""Written texts, against sacrebleu and rouge_score called as people call them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from meristem.errors import MeristemError
from meristem.metrics import writing
from meristem.metrics.bootstrap import intervals
from meristem.metrics.words import script, words

GOLDS = [["The cat sat on the mat, quietly."], ["A dog ran through the park."], ["It rains again in the north today."]]
SAID = ["The cat sat on a mat quietly.", "A dog ran through a green park.", "It rains in the north."]
CHINESE = [["我们今天下午去公园散步。"], ["他在图书馆里看书。"]]
CHINESE_SAID = ["我们今天去公园散步。", "他在家里看书。"]


def test_bleu_and_chrf_are_sacrebleus() -> None:
    from sacrebleu import corpus_bleu, corpus_chrf

    streams = [[gold[0] for gold in GOLDS]]
    found = writing.translation(GOLDS, SAID)
    assert found == {"bleu": corpus_bleu(SAID, streams).score, "chrf": corpus_chrf(SAID, streams).score}


def test_several_references_that_differ_in_number() -> None:
    from sacrebleu import corpus_bleu

    golds = [[*GOLDS[0], "The cat sat on a mat quietly."], GOLDS[1], GOLDS[2]]
    streams = [[gold[0] for gold in golds], [golds[0][1], None, None]]
    assert writing.translation(golds, SAID)["bleu"] == corpus_bleu(SAID, streams).score
    assert writing.translation(golds, SAID)["bleu"] > writing.translation(GOLDS, SAID)["bleu"]
    assert "nrefs:var" in writing.signature(golds)


def test_chinese_is_cut_into_characters() -> None:
    from sacrebleu import corpus_bleu

    streams = [[gold[0] for gold in CHINESE]]
    found = writing.translation(CHINESE, CHINESE_SAID)["bleu"]
    assert found == corpus_bleu(CHINESE_SAID, streams, tokenize="zh").score > 30
    assert "tok:zh" in writing.signature(CHINESE)


def test_the_signature_is_what_people_cite() -> None:
    from sacrebleu import __version__

    bleu, chrf = writing.signature(GOLDS).split("  ")
    assert bleu == f"BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{__version__}"
    assert chrf == f"chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{__version__}"


def test_rouge_is_rouge_scores_with_its_stemmer() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    names = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(names, use_stemmer=True)
    found = writing.summary(GOLDS, SAID)
    for name in names:
        each = [scorer.score(gold[0], said)[name].fmeasure for gold, said in zip(GOLDS, SAID, strict=True)]
        assert found[name] == pytest.approx(np.mean(each), abs=1e-12)
    assert writing.summary([["she runs"]], ["she running"])["rouge1"] == 1.0


def test_rouge_lsum_goes_by_sentences() -> None:
    golds, said = [["The dog barked. The cat slept."]], ["The cat slept. The dog barked."]
    found = writing.summary(golds, said)
    assert found["rougeL"] < 1.0
    assert found["rougeLsum"] == 1.0


def test_rouge_of_other_scripts() -> None:
    chinese = writing.summary([["北京大学"]], ["北京"])
    assert chinese["rouge1"] == pytest.approx(2 / 3)
    assert chinese["rouge2"] == pytest.approx(0.5)
    german = writing.summary([["schöne Grüße über Öl"]], ["schöne Grüße"])  # rouge_score's own keeps sch, ne, gr, e
    assert german["rouge1"] == pytest.approx(2 / 3)


def test_the_most_similar_reference_counts() -> None:
    assert writing.summary([["nothing alike", "a red fox"]], ["a red fox"])["rouge2"] == 1.0


def test_empty_texts_are_counted() -> None:
    assert writing.translation(GOLDS, ["", "", ""]) == {"bleu": 0.0, "chrf": 0.0}
    assert writing.summary(GOLDS, ["", "", ""])["rougeLsum"] == 0.0


def test_texts_without_references_are_refused() -> None:
    with pytest.raises(MeristemError, match="none may be empty"):
        writing.translation([["a"], []], ["a", "b"])


@pytest.mark.parametrize("kind", ["translation", "summary"])
def test_resampled_is_the_score_exactly_and_fast(kind: str) -> None:
    rng = np.random.default_rng(0)
    known, size = ["the", "red", "fox", "and", "a", "blue", "dog", "home"], 300
    golds = [[" ".join(rng.choice(known, 6)) for _ in range(number)] for number in rng.integers(1, 3, size)]
    said = [" ".join(rng.choice(known, 8)) for _ in range(size)]
    score, resampled = {
        "translation": (writing.translation, writing.translation_resampled),
        "summary": (writing.summary, writing.summary_resampled),
    }[kind]
    measure = resampled(golds, said)
    assert measure(np.arange(size)) == score(golds, said)
    at = rng.integers(0, size, size)
    assert measure(at) == pytest.approx(score([golds[i] for i in at], [said[i] for i in at]), abs=1e-9)
    begun = time.process_time()
    intervals(measure, size)
    assert time.process_time() - begun < 3  # a fifth of a second here; scoring a thousand sets anew takes minutes


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
    assert script([text]) == kind


def test_words_of_mixed_scripts() -> None:
    assert words("用GPT写 two 句") == ["用", "GPT", "写", "two", "句"]
