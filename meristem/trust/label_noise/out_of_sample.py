"""Out-of-sample probabilities of labels: cross-validation of a linear model on n-grams or on frozen embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meristem.data.ngram_features import text_features
from meristem.interfaces.sample import Sample
from meristem.metrics.linear_baseline import label_probabilities
from meristem.utils.optional_packages import require_module
from meristem.utils.randomness import generator

Log = Callable[[str], None]


def assign_folds(keys: Sequence[str], num_folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each sample; samples with the same key (duplicates) are in one fold."""
    groups = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    order = generator(seed, "label noise folds", 0, 0).permutation(len(groups))
    folds = order % num_folds
    return np.array([folds[groups[key]] for key in keys], np.int64)


def cross_validate(
    samples: Sequence[Sample],
    given: Sequence[str],
    labels: Sequence[str],
    folds: NDArray[np.int64],
    *,
    embeddings: NDArray[np.float32] | None = None,
    log: Log = lambda message: None,
) -> NDArray[np.float64]:
    """[samples, labels]: for each sample the probabilities by a model that was trained on the other folds."""
    probabilities = np.zeros((len(samples), len(labels)))
    features = [text_features(sample_texts(sample)) for sample in samples] if embeddings is None else []
    for fold in range(int(folds.max()) + 1):
        log(f"fold {fold + 1} of {int(folds.max()) + 1}")
        held_out, train = np.flatnonzero(folds == fold).tolist(), np.flatnonzero(folds != fold).tolist()
        train_golds = [given[index] for index in train]
        if embeddings is None:
            probabilities[held_out] = label_probabilities(
                [features[index] for index in train], train_golds, [features[index] for index in held_out], labels
            )
        else:
            probabilities[held_out] = _embedding_probabilities(
                embeddings[train], train_golds, embeddings[held_out], labels
            )
    return probabilities


def _embedding_probabilities(
    train: NDArray[np.float32], golds: Sequence[str], held_out: NDArray[np.float32], labels: Sequence[str]
) -> NDArray[np.float64]:
    """Logistic regression on standardised embeddings."""
    require_module("sklearn", "a linear model of embeddings", "metrics", package="scikit-learn")
    from sklearn.linear_model import LogisticRegression

    result = np.zeros((len(held_out), len(labels)))
    columns = {label: column for column, label in enumerate(labels)}
    if len(set(golds)) < 2:
        result[:, columns[golds[0]]] = 1.0
        return result
    mean, spread = train.mean(0), train.std(0) + 1e-6
    classifier = LogisticRegression(C=1.0, max_iter=300).fit((train - mean) / spread, golds)
    predicted = classifier.predict_proba((held_out - mean) / spread)
    for column, label in enumerate(classifier.classes_):
        result[:, columns[str(label)]] = predicted[:, column]
    return result


def sample_texts(sample: Sample) -> tuple[str, ...]:
    """The text of a sample, or the two of a pair."""
    return tuple(value for value in sample.inputs.values() if isinstance(value, str))
