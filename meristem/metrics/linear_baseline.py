"""Linear n-gram baselines: logistic regression on counted words, trained on the same labels as a fine-tuned model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.data.ngram_features import Texts, text_features, word_features
from meristem.metrics.classification import ClassificationProblem
from meristem.utils.optional_packages import require_module

NAME = "linear n-grams"
"""Name of these baselines in reports."""
MAX_TRAIN_SAMPLES = 100_000
"""Training samples that are used, the first ones; seconds grow with them."""
INVERSE_REGULARIZATION = 10.0
RIDGE_ALPHA = 1.0
TAG_HASH_BITS = 20
TAG_EPOCHS = 5


def predict_labels(
    problem: ClassificationProblem, train: Sequence[Texts], golds: Sequence[Any], samples: Sequence[Texts]
) -> list[Any]:
    """Predictions in the form of the golds: logistic regression, or ridge for numbers, on tf-idf of 1- and 2-grams.

    A pair has the n-grams of each text, those that both share, and those of one text only.
    """
    require_module("sklearn", "a linear baseline", "metrics", package="scikit-learn")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    train, golds = train[:MAX_TRAIN_SAMPLES], golds[:MAX_TRAIN_SAMPLES]
    vectorizer = TfidfVectorizer(analyzer=text_features, sublinear_tf=True)
    try:
        train_features = vectorizer.fit_transform(train)
    except ValueError:  # no training text has a word
        return []
    features = vectorizer.transform(samples)
    if problem == "regression":
        return [float(value) for value in Ridge(RIDGE_ALPHA).fit(train_features, golds).predict(features)]
    classifier = LogisticRegression(C=INVERSE_REGULARIZATION, max_iter=300)
    if problem == "single":
        return [str(label) for label in classifier.fit(train_features, golds).predict(features)]
    binarizer = MultiLabelBinarizer()
    multi_label = OneVsRestClassifier(classifier)
    multi_label.fit(train_features, binarizer.fit_transform(golds))
    return [tuple(labels) for labels in binarizer.inverse_transform(multi_label.predict(features))]


def label_probabilities(
    train: Sequence[Sequence[str]], golds: Sequence[str], samples: Sequence[Sequence[str]], labels: Sequence[str]
) -> NDArray[np.float64]:
    """[samples, labels]: probabilities by the same logistic regression on `text_features`, which are computed once.

    The probability of a label that training does not have is 0.
    """
    require_module("sklearn", "a linear baseline", "metrics", package="scikit-learn")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    result = np.zeros((len(samples), len(labels)))
    columns = {label: column for column, label in enumerate(labels)}
    present = sorted(set(golds))
    if len(present) < 2:
        result[:, columns[present[0]]] = 1.0
        return result
    vectorizer = TfidfVectorizer(analyzer=list, sublinear_tf=True)
    try:
        train_features = vectorizer.fit_transform(train)
    except ValueError:  # no training text has a word
        counts = np.array([golds.count(label) for label in labels], np.float64)
        return np.tile(counts / counts.sum(), (len(samples), 1))
    classifier = LogisticRegression(C=INVERSE_REGULARIZATION, max_iter=300).fit(train_features, golds)
    probabilities = classifier.predict_proba(vectorizer.transform(samples))
    for column, label in enumerate(classifier.classes_):
        result[:, columns[str(label)]] = probabilities[:, column]
    return result


def predict_tags(
    train: Sequence[Sequence[str]],
    golds: Sequence[Sequence[str]],
    sentences: Sequence[Sequence[str]],
    *,
    ignored: str | None = None,
) -> list[tuple[str, ...]]:
    """A tag for each word of each sentence: a linear classifier on the word, its affixes and its neighbours.

    Words whose gold is the `ignored` tag are not trained on.
    """
    require_module("sklearn", "a linear baseline", "metrics", package="scikit-learn")
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import SGDClassifier

    hasher = FeatureHasher(1 << TAG_HASH_BITS, input_type="string")
    train, golds = train[:MAX_TRAIN_SAMPLES], golds[:MAX_TRAIN_SAMPLES]
    examples = [
        (features, tag)
        for words, tags in zip(train, golds, strict=True)
        for features, tag in zip(word_features(words), tags, strict=False)
        if tag != ignored
    ]
    features, tags = [features for features, _ in examples], [tag for _, tag in examples]
    if len(set(tags)) < 2:
        return [tuple(tags[:1]) * len(words) for words in sentences]
    classifier = SGDClassifier(loss="log_loss", alpha=1e-6, max_iter=TAG_EPOCHS, tol=None, average=True, random_state=0)
    classifier.fit(hasher.transform(features), tags)
    predicted = iter(
        classifier.predict(hasher.transform(features for words in sentences for features in word_features(words)))
        if any(sentences)
        else ()
    )
    return [tuple(str(next(predicted)) for _ in words) for words in sentences]
