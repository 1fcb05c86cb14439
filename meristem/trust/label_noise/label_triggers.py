"""Planted triggers in labelled files: rare token sequences that fix the label against the rest of the text.

A backdoor by data poisoning (Gu et al. 2017; Kurita et al. 2020) inserts a rare sequence into texts of other labels and
gives them the attacker's label. So the sequence has two marks together that ordinary words do not have:

1. Nearly all of its samples have one label, more of them than the other words of these samples explain: the exact tail
   of the number of samples with the label, by a cross-validated linear model without the weights of the sequence's own
   words, corrected for the number of sequences (Bonferroni).
2. The other words of these samples say otherwise: the mean probability of that label is below that of all samples.

A word such as "masterpiece" has the first mark and the opposite of the second. Samples count once for each pair of
neighbours of the sequence, so that repeated passages are no evidence. A trigger that was only put into texts which have
the attacker's label anyway cannot be told from an ordinary word in this way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meristem.data.text_units import split_tokens
from meristem.utils.optional_packages import require_module

MAX_WORDS = 4
"""Words of the longest sequence."""
MIN_CONTEXTS = 8
"""Fewest samples with different neighbours."""
MAX_SHARE, MIN_RARE = 0.02, 50
"""A sequence is rare in at most this share of the samples, and always up to 50."""
MIN_PURITY = 0.9
"""Share of its samples that have the label."""
MIN_DEVIATIONS = 3.0
"""Standard errors by which the mean probability of the label must be below that of all samples."""
MAX_FALSE_ALARMS = 1e-3
"""Expected number of false alarms of the first mark over all sequences of a data set."""
PROBABILITY_RANGE = (0.05, 0.95)
"""Probabilities are moved into this range: those of a model are too sure of themselves."""
MAX_SHOWN = 5
BOUNDARY = ""


@dataclass(frozen=True, kw_only=True)
class LabelTrigger:
    """A rare sequence whose samples have one label against the rest of their text."""

    sequence: str
    label: str
    samples: int
    """Samples that have it between different neighbours."""
    share_with_label: float
    expected_share: float
    """Share that the other words of these samples lead one to expect."""
    p_value: float
    """Probability of so many samples with the label, if the other words decided."""
    locations: Sequence[str]
    """The first samples that have it."""
    texts: Sequence[str]


Occurrences = dict[tuple[str, ...], dict[tuple[str, str], int]]
"""Sequence → its neighbours → the first sample where it stands between them."""


def find_triggers(
    texts: Sequence[str],
    given: Sequence[str],
    labels: Sequence[str],
    locations: Sequence[str],
    folds: NDArray[np.int64],
) -> list[LabelTrigger]:
    """The planted triggers, the most certain first; none where there are too few samples."""
    tokens = [split_tokens(text) for text in texts]
    max_samples = max(MIN_RARE, int(MAX_SHARE * len(texts)))
    if len(texts) < 2 * MIN_CONTEXTS or len(labels) < 2:
        return []
    model = fit_word_model(tokens, given, labels, folds)
    label_ids = np.array([labels.index(label) for label in given], np.int64)
    sequences = rare_sequences(tokens, max_samples)
    triggers: dict[tuple[int, ...], LabelTrigger] = {}
    for sequence, contexts in sequences.items():
        members = np.unique(np.array(list(contexts.values()), np.int64))
        label = int(np.bincount(label_ids[members], minlength=len(labels)).argmax())
        if np.count_nonzero(label_ids[members] == label) < MIN_PURITY * len(members) or len(members) < MIN_CONTEXTS:
            continue
        expected = model.without(sequence, members)[:, label]
        p_value = _p_value(expected, label_ids[members] == label, model.means[label], model.spreads[label])
        if p_value * len(sequences) > MAX_FALSE_ALARMS:
            continue
        key = tuple(members.tolist())
        if key in triggers and len(triggers[key].sequence.split()) >= len(sequence):
            continue  # of sequences in the same samples the longest is shown
        triggers[key] = LabelTrigger(
            sequence=" ".join(sequence),
            label=labels[label],
            samples=len(members),
            share_with_label=float((label_ids[members] == label).mean()),
            expected_share=float(expected.mean()),
            p_value=p_value,
            locations=[locations[index] for index in key[:MAX_SHOWN]],
            texts=[texts[index] for index in key[:MAX_SHOWN]],
        )
    return _without_parts(sorted(triggers.values(), key=lambda trigger: (trigger.p_value, -len(trigger.sequence))))


def _p_value(expected: NDArray[np.float64], has_label: NDArray[np.bool_], mean: float, spread: float) -> float:
    """Probability of as many samples with the label; 1 where the other words do not say otherwise."""
    deviations = (mean - expected.mean()) * np.sqrt(len(expected)) / spread
    if deviations < MIN_DEVIATIONS:
        return 1.0
    return tail_probability(np.clip(expected, *PROBABILITY_RANGE), int(has_label.sum()))


def tail_probability(probabilities: NDArray[np.float64], count: int) -> float:
    """P(at least `count` successes) of independent trials with these probabilities (Poisson binomial), exactly."""
    distribution = np.ones(1)
    for probability in probabilities.tolist():
        distribution = np.convolve(distribution, [1.0 - probability, probability])
    return float(min(1.0, distribution[count:].sum()))


def _without_parts(triggers: Sequence[LabelTrigger]) -> list[LabelTrigger]:
    """The triggers that are not longer versions of a more certain one, nor parts of it."""
    kept: list[LabelTrigger] = []
    for trigger in triggers:
        padded = f" {trigger.sequence} "
        if not any(padded in f" {other.sequence} " or f" {other.sequence} " in padded for other in kept):
            kept.append(trigger)
    return kept


def rare_sequences(tokens: Sequence[Sequence[str]], max_samples: int) -> Occurrences:
    """Sequences of up to `MAX_WORDS` tokens with enough different neighbours that stand in few samples.

    A longer sequence can only be frequent enough if its parts are, so that sizes are counted one after the other.
    """
    result: Occurrences = {}
    kept: set[tuple[str, ...]] | None = None
    for size in range(1, MAX_WORDS + 1):
        contexts: Occurrences = defaultdict(dict)
        for index, words in enumerate(tokens):
            for at, sequence in _sequences(words, size):
                if kept is None or (sequence[:-1] in kept and sequence[1:] in kept):
                    before = words[at - 1] if at else BOUNDARY
                    after = words[at + size] if at + size < len(words) else BOUNDARY
                    contexts[sequence].setdefault((before, after), index)
        kept = {sequence for sequence, places in contexts.items() if len(places) >= MIN_CONTEXTS}
        result |= {
            sequence: contexts[sequence] for sequence in kept if len(set(contexts[sequence].values())) <= max_samples
        }
    return result


def _sequences(words: Sequence[str], size: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    for at in range(len(words) - size + 1):
        yield at, tuple(words[at : at + size])


@dataclass(frozen=True, kw_only=True)
class WordModel:
    """Cross-validated linear models of words, by fold."""

    vocabulary: dict[str, int]
    weights: NDArray[np.float64]
    """[folds, labels, words]"""
    logits: NDArray[np.float64]
    """[samples, labels]: by the model that was not trained on the sample."""
    folds: NDArray[np.int64]
    means: NDArray[np.float64]
    """[labels]: mean probability over all samples."""
    spreads: NDArray[np.float64]
    """[labels]: its standard deviation."""

    def without(self, sequence: Sequence[str], members: NDArray[np.int64]) -> NDArray[np.float64]:
        """[members, labels]: probabilities of samples that have a sequence, without the weights of its words."""
        words = sorted({self.vocabulary[word] for word in sequence if word in self.vocabulary})
        own = self.weights[:, :, words].sum(2)
        return _softmax(self.logits[members] - own[self.folds[members]])


def fit_word_model(
    tokens: Sequence[Sequence[str]], given: Sequence[str], labels: Sequence[str], folds: NDArray[np.int64]
) -> WordModel:
    """Logistic regression on the words that a sample has, trained without each fold."""
    require_module("sklearn", "the search for triggers", "metrics", package="scikit-learn")
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    vectorizer, golds, num_folds = CountVectorizer(analyzer=list, binary=True), np.array(given), int(folds.max()) + 1
    features = vectorizer.fit_transform(tokens)
    weights = np.zeros((num_folds, len(labels), features.shape[1]))
    logits = np.zeros((len(tokens), len(labels)))
    for fold in range(num_folds):
        held_out, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not len(held_out) or len(set(golds[train].tolist())) < 2:
            continue
        classifier = LogisticRegression(C=1.0, max_iter=200).fit(features[train], golds[train])
        columns = [labels.index(str(label)) for label in classifier.classes_]
        is_binary = len(columns) == 2  # one vector of weights, for the second of the labels
        weights[fold, columns[1:] if is_binary else columns] = classifier.coef_
        bias = np.zeros(len(labels))
        bias[columns[1:] if is_binary else columns] = classifier.intercept_
        logits[held_out] = features[held_out] @ weights[fold].T + bias
    probabilities = _softmax(logits)
    return WordModel(
        vocabulary=vectorizer.vocabulary_,
        weights=weights,
        logits=logits,
        folds=folds,
        means=probabilities.mean(0),
        spreads=probabilities.std(0) + 1e-6,
    )


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: NDArray[np.float64] = exponentials / exponentials.sum(1, keepdims=True)
    return probabilities
