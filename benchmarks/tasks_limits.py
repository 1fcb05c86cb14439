"""Limits of two rows of the task benchmark: bag-of-words on 500 SST-2 sentences, and Weibo characters in the poems.

    python -m benchmarks.tasks_limits ../shared/data

Logistic regression on word counts, and on the mean of word vectors: GloVe (six billion words), and word2vec trained on
the text that the encoder is pretrained on. Accuracy on the development data, three draws of the examples. The rows are
written to docs/results/tasks-limits.json and shown on the page of the task benchmark.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gensim.models import Word2Vec
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from benchmarks.side_by_side import RESULTS, table
from benchmarks.tasks_pretraining import english

EXAMPLES, SEEDS = 500, 3
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Regularization strengths, chosen by cross-validation within the examples."""
SEEN = 20
"""Minimum count of a character in the pretraining text to be considered known."""
FILE = RESULTS / "tasks-limits.json"
Vectors = Mapping[str, Any]
LabelledTexts = list[tuple[str, str]]


def sentences(path: Path) -> LabelledTexts:
    """Sentences with their labels."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence"], row["label"]) for row in rows]


def glove(path: Path) -> Vectors:
    """Word vectors of a text file."""
    lines = (line.split(" ") for line in path.read_text(encoding="utf-8").splitlines())
    return {word: np.array(values, np.float64) for word, *values in lines}


def train_vectors(paths: Sequence[Path]) -> Vectors:
    """word2vec vectors trained on lines of text."""
    lines = [re.findall(r"\w+|[^\w\s]", line.lower()) for path in paths for line in path.open(encoding="utf-8")]
    word2vec = Word2Vec(lines, vector_size=100, min_count=5, sg=1, epochs=5, workers=1, seed=0).wv
    return {word: word2vec[word] for word in word2vec.key_to_index}


def mean_of(vectors: Vectors) -> Any:
    """A scikit-learn transformer from texts to mean word vectors."""
    zero_vector = np.zeros_like(next(iter(vectors.values())))

    def mean_vectors(texts: Sequence[str]) -> Any:
        return np.array(
            [np.mean([vectors[w] for w in text.split() if w in vectors] or [zero_vector], 0) for text in texts]
        )

    return make_pipeline(FunctionTransformer(mean_vectors), StandardScaler())


def accuracies(part: Callable[[], Any], train: LabelledTexts, dev: LabelledTexts) -> list[float]:
    """Accuracy for each draw of the examples."""
    out = []
    for seed in range(SEEDS):
        sampled_rows = random.Random(seed).sample(train, EXAMPLES)
        model = make_pipeline(part(), LogisticRegression(max_iter=1000))
        tried = GridSearchCV(model, {"logisticregression__C": STRENGTHS}, cv=5)
        tried.fit([text for text, _ in sampled_rows], [label for _, label in sampled_rows])
        out.append(float(tried.score([text for text, _ in dev], [label for _, label in dev])))
    return out


def rows() -> list[list[str]]:
    """Table rows of the stored results; empty if not measured."""
    if not FILE.is_file():
        return []
    payload: dict[str, list[float]] = json.loads(FILE.read_text(encoding="utf-8"))
    return [[name, f"{statistics.mean(v):.3f} ({min(v):.3f}–{max(v):.3f})"] for name, v in payload.items()]


def script(data: Path) -> str:
    """A sentence on how many of Weibo's characters are rare in the poems."""
    poems = Counter((data / "chinese_poetry" / "tang.txt").read_text(encoding="utf-8"))
    lines = (data / "weibo_ner" / "weiboNER_2nd_conll.test").read_text(encoding="utf-8").splitlines()
    tagged = [(line[0], line.split()[-1]) for line in lines if line.strip() and "\u4e00" <= line[0] <= "\u9fff"]

    def rare(letters: Sequence[str]) -> str:
        return f"{sum(poems[letter] < SEEN for letter in letters) / len(letters):.0%}"

    rare_share, names = (
        rare([sentence for sentence, _ in tagged]),
        rare([sentence for sentence, tag in tagged if tag != "O"]),
    )
    return (
        f"Of the Chinese characters in Weibo's test sentences, {rare_share} ({names} in its names) occur fewer than "
        f"{SEEN} times in the poems, which are almost all of the Chinese encoder's training text."
    )


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    train, dev = (sentences(data / "sst2" / name) for name in ("train.tsv", "dev.tsv"))
    published = glove(data / "glove" / "glove.6B.50d.top40k.txt")
    own_vectors = train_vectors(english(data, Path()))
    parts: dict[str, Callable[[], Any]] = {
        "word counts": lambda: CountVectorizer(token_pattern=r"\S+"),
        "mean of GloVe vectors (6 billion words)": lambda: mean_of(published),
        "mean of word2vec vectors trained on the pretraining text": lambda: mean_of(own_vectors),
    }
    FILE.write_text(json.dumps({name: accuracies(part, train, dev) for name, part in parts.items()}, indent=1) + "\n")
    print(table(["logistic regression on", "accuracy"], rows()))


if __name__ == "__main__":
    main()
