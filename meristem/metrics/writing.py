"""Written texts beside references: BLEU and chrF by sacrebleu, ROUGE by rouge_score."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meristem.errors import MeristemError
from meristem.metrics.bootstrap import totals
from meristem.metrics.words import script, words
from meristem.task import Indices, Metrics

References = Sequence[Sequence[str]]
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")


def translation(golds: References, said: Sequence[str]) -> Metrics:
    """bleu and chrf over the whole set, from 0 to 100; references may be several, and differ in number."""
    return translation_resampled(golds, said)(np.arange(len(golds)))


def translation_resampled(golds: References, said: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same numbers on a resampled set, from what each text adds to the counts."""
    measured = {name: (metric, _statistics(metric, golds, said)) for name, metric in _scorers(golds).items()}

    def measure(at: Indices) -> Metrics:
        return {name: _from_sums(metric, totals(each, at)) for name, (metric, each) in measured.items()}

    return measure


def signature(golds: References) -> str:
    """How sacrebleu computed both numbers, to be cited with them."""
    told = []
    for name, metric in _scorers(golds).items():
        metric._cache_references(_streams(golds))  # what the signature says of references is known from then on
        told.append(f"{'BLEU' if name == 'bleu' else 'chrF2'}|{metric.get_signature()}")
    return "  ".join(told)


def summary(golds: References, said: Sequence[str]) -> Metrics:
    """The mean F of ROUGE-1, -2, -L and -Lsum, each text beside the reference that it is most like."""
    return summary_resampled(golds, said)(np.arange(len(golds)))


def summary_resampled(golds: References, said: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same numbers on a resampled set, from those of each text."""
    scorer = _rouge(golds)
    each = np.zeros((len(golds), len(ROUGE)))
    for number, (some, text) in enumerate(zip(golds, said, strict=True)):
        found = scorer.score_multi([_by_line(one) for one in some] or [""], _by_line(text))
        each[number] = [found[name].fmeasure for name in ROUGE]
    return lambda at: dict(zip(ROUGE, (totals(each, at) / (len(at) or 1)).tolist(), strict=True))


def _scorers(golds: References) -> dict[str, Any]:
    """Chinese is cut into characters, as sacrebleu's zh does; Japanese too, for want of a morphology."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MeristemError('BLEU and chrF need sacrebleu: pip install "meristem[metrics]"') from None
    tokenizer = {"han": "zh", "kana": "char"}.get(script(text for some in golds for text in some), "13a")
    return {"bleu": BLEU(tokenize=tokenizer, force=True), "chrf": CHRF()}


def _streams(golds: References) -> list[list[str | None]]:
    """References as sacrebleu takes them: the first of every text, the second of every text, …"""
    most = max((len(some) for some in golds), default=1) or 1
    return [[some[place] if place < len(some) else None for some in golds] for place in range(most)]


def _statistics(metric: Any, golds: References, said: Sequence[str]) -> Any:
    """Per text the counts that a corpus score is made from; sacrebleu's own resampling takes them so."""
    if len(golds) != len(said) or not all(golds):
        raise MeristemError(f"{len(said)} texts beside {len(golds)} sets of references, of which none may be empty")
    return np.array(metric._extract_corpus_statistics(list(said), _streams(golds)), np.float64)


def _from_sums(metric: Any, sums: Any) -> float:
    return float(metric._compute_score_from_stats(sums.astype(np.int64).tolist()).score)


class _Words:
    """Words of any script, ideographs by themselves: rouge_score's own keeps nothing but a to z and digits."""

    def tokenize(self, text: str) -> list[str]:
        return [word for part in words(text.lower()) for word in _WORD.findall(part)]


def _rouge(golds: References) -> Any:
    """With its stemmer where the references are written in plain a to z, by words or characters elsewhere."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise MeristemError('ROUGE needs rouge-score: pip install "meristem[metrics]"') from None
    logging.getLogger("absl").setLevel(logging.WARNING)
    if script(text for some in golds for text in some) == "latin":
        return RougeScorer(list(ROUGE), use_stemmer=True)
    return RougeScorer(list(ROUGE), tokenizer=_Words())


def _by_line(text: str) -> str:
    """A sentence a line, which is what ROUGE-Lsum goes by."""
    return _SENTENCE_END.sub("\n", text.strip())
