"""Linear n-gram baselines: logistic regression on counted words, trained on the same labels as a fine-tuned model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
TAG_ALPHA, PROBABILITY_ALPHA = 1e-6, 1e-4
"""Regularization for predictions, and for probabilities: with little of it wrong labels are learned by heart (of 5 %
wrong tags in 1,500 sentences of UD POS half were found with a precision of 0.64 and 0.95 with 1e-6 and 2e-4)."""


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
    tagger = _LinearTagger.fit(train, golds, ignored)
    if tagger.only_tag is not None:
        return [(tagger.only_tag,) * len(words) if tagger.only_tag else () for words in sentences]
    predicted = iter(tagger.classifier.predict(tagger.features(sentences)) if any(sentences) else ())
    return [tuple(str(next(predicted)) for _ in words) for words in sentences]


def tag_probabilities(
    train: Sequence[Sequence[str]],
    golds: Sequence[Sequence[str]],
    sentences: Sequence[Sequence[str]],
    labels: Sequence[str],
) -> NDArray[np.float64]:
    """[words of all sentences, labels]: probabilities of tags by the same linear classifier.

    The probability of a tag that training does not have is 0.
    """
    tagger = _LinearTagger.fit(train, golds, None, alpha=PROBABILITY_ALPHA)
    result = np.zeros((sum(map(len, sentences)), len(labels)))
    columns = {label: column for column, label in enumerate(labels)}
    if tagger.only_tag is not None:
        result[:, columns[tagger.only_tag]] = 1.0
    elif len(result):
        probabilities = tagger.classifier.predict_proba(tagger.features(sentences))
        for column, label in enumerate(tagger.classifier.classes_):
            result[:, columns[str(label)]] = probabilities[:, column]
    return result


@dataclass(frozen=True)
class _LinearTagger:
    """A linear classifier of words, or the only tag that training has."""

    classifier: Any
    hasher: Any
    only_tag: str | None = None

    @classmethod
    def fit(
        cls,
        train: Sequence[Sequence[str]],
        golds: Sequence[Sequence[str]],
        ignored: str | None,
        alpha: float = TAG_ALPHA,
    ) -> _LinearTagger:
        """Logistic regression by stochastic gradient descent on hashed features."""
        require_module("sklearn", "a linear baseline", "metrics", package="scikit-learn")
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.linear_model import SGDClassifier

        examples = [
            (features, tag)
            for words, tags in zip(train[:MAX_TRAIN_SAMPLES], golds[:MAX_TRAIN_SAMPLES], strict=True)
            for features, tag in zip(word_features(words), tags, strict=False)
            if tag != ignored
        ]
        tags = [tag for _, tag in examples]
        hasher = FeatureHasher(1 << TAG_HASH_BITS, input_type="string")
        if len(set(tags)) < 2:
            return cls(None, hasher, "" if not tags else tags[0])
        classifier = SGDClassifier(
            loss="log_loss", alpha=alpha, max_iter=TAG_EPOCHS, tol=None, average=True, random_state=0
        )
        return cls(classifier.fit(hasher.transform(features for features, _ in examples), tags), hasher)

    def features(self, sentences: Sequence[Sequence[str]]) -> Any:
        """The hashed features of all words, one row each."""
        return self.hasher.transform(features for words in sentences for features in word_features(words))
