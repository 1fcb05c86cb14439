"""BLEU and chrF (sacrebleu) and ROUGE (rouge_score) of generated texts against references."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meristem.config.errors import MeristemError
from meristem.data.text_units import main_script, split_words
from meristem.interfaces.task_evaluation import Indices, Metrics
from meristem.metrics.bootstrap import sum_rows

References = Sequence[Sequence[str]]
ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")


def translation_metrics(golds: References, predictions: Sequence[str]) -> Metrics:
    """Corpus-level bleu and chrf, from 0 to 100; a text may have several references."""
    return translation_resampler(golds, predictions)(np.arange(len(golds)))


def translation_resampler(golds: References, predictions: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same metrics as a function of resampled indices, from per-text statistics."""
    statistics = {name: (metric, _statistics(metric, golds, predictions)) for name, metric in _scorers(golds).items()}

    def measure(indices: Indices) -> Metrics:
        return {
            name: _score_from_sums(metric, sum_rows(per_text, indices))
            for name, (metric, per_text) in statistics.items()
        }

    return measure


def sacrebleu_signature(golds: References) -> str:
    """The sacrebleu signatures of both metrics, to be cited with them."""
    signatures = []
    for name, metric in _scorers(golds).items():
        # the signature includes the number of references, which is set here
        metric._cache_references(_reference_streams(golds))
        signatures.append(f"{'BLEU' if name == 'bleu' else 'chrF2'}|{metric.get_signature()}")
    return "  ".join(signatures)


def rouge_metrics(golds: References, predictions: Sequence[str]) -> Metrics:
    """Mean F1 of ROUGE-1, -2, -L and -Lsum; of several references the one with the highest score counts."""
    return rouge_resampler(golds, predictions)(np.arange(len(golds)))


def rouge_resampler(golds: References, predictions: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same metrics as a function of resampled indices, from per-text scores."""
    scorer = _rouge_scorer(golds)
    per_text = np.zeros((len(golds), len(ROUGE_TYPES)))
    for index, (references, text) in enumerate(zip(golds, predictions, strict=True)):
        scores = scorer.score_multi(
            [_split_sentences(reference) for reference in references] or [""], _split_sentences(text)
        )
        per_text[index] = [scores[name].fmeasure for name in ROUGE_TYPES]
    return lambda indices: dict(
        zip(ROUGE_TYPES, (sum_rows(per_text, indices) / (len(indices) or 1)).tolist(), strict=True)
    )


def _scorers(golds: References) -> dict[str, Any]:
    """sacrebleu metrics; Chinese is split into characters by the zh tokenizer, Japanese by char, lacking a parser."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MeristemError('BLEU and chrF need sacrebleu: pip install "meristem-lm[metrics]"') from None
    tokenizer = {"han": "zh", "kana": "char"}.get(
        main_script(text for references in golds for text in references), "13a"
    )
    return {"bleu": BLEU(tokenize=tokenizer, force=True), "chrf": CHRF()}


def _reference_streams(golds: References) -> list[list[str | None]]:
    """References as sacrebleu expects them: the first of every text, the second of every text, …"""
    max_references = max((len(references) for references in golds), default=1) or 1
    return [
        [references[index] if index < len(references) else None for references in golds]
        for index in range(max_references)
    ]


def _statistics(metric: Any, golds: References, predictions: Sequence[str]) -> Any:
    """[texts, counts] the statistics that the corpus score is computed from, as in sacrebleu's own bootstrap."""
    if len(golds) != len(predictions) or not all(golds):
        raise MeristemError(
            f"{len(predictions)} texts, but {len(golds)} lists of references, none of which may be empty"
        )
    return np.array(metric._extract_corpus_statistics(list(predictions), _reference_streams(golds)), np.float64)


def _score_from_sums(metric: Any, sums: Any) -> float:
    return float(metric._compute_score_from_stats(sums.astype(np.int64).tolist()).score)


class _ScriptAwareTokenizer:
    """Words of any script, ideographs one by one: rouge_score's own tokenizer keeps only a to z and digits."""

    def tokenize(self, text: str) -> list[str]:
        return [word for part in split_words(text.lower()) for word in _WORD.findall(part)]


def _rouge_scorer(golds: References) -> Any:
    """A scorer with stemming for references in plain a to z, otherwise by words or characters."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise MeristemError('ROUGE needs rouge-score: pip install "meristem-lm[metrics]"') from None
    logging.getLogger("absl").setLevel(logging.WARNING)
    if main_script(text for references in golds for text in references) == "latin":
        return RougeScorer(list(ROUGE_TYPES), use_stemmer=True)
    return RougeScorer(list(ROUGE_TYPES), tokenizer=_ScriptAwareTokenizer())


def _split_sentences(text: str) -> str:
    """One sentence per line, as ROUGE-Lsum expects."""
    return _SENTENCE_END.sub("\n", text.strip())
