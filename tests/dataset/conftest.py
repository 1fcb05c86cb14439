from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer

LETTERS = string.ascii_letters + string.digits
Make = Callable[..., TokenDataset]


def write_vocabulary(path: Path, size: int | None = None) -> Path:
    """Special tokens, letters and a few Chinese characters, filled up to a size."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
        *".,!?\"'。，！？",
        *"天地人大小上下左右你我他好",
    ]
    words += [f"filler{number}" for number in range((size or len(words)) - len(words))]
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_vocabulary(tmp_path_factory.mktemp("tokenizer") / "vocab.txt"))


@pytest.fixture(scope="session")
def make(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Build a small dataset from texts, all of them for training."""

    def make_dataset(texts: Sequence[str], *, shard_tokens: int = 1_000) -> TokenDataset:
        documents = [Document(text, f"test:{number}") for number, text in enumerate(texts)]
        settings = DatasetSettings(shard_tokens=shard_tokens)
        return build_dataset(documents, tokenizer, tmp_path_factory.mktemp("store"), settings, processes=1)

    return make_dataset


def stories(count: int, seed: int = 0, sentences: tuple[int, int] = (1, 12)) -> list[str]:
    """Texts of random words, in sentences of at most 41 letters and marks, no two alike."""
    generator = np.random.default_rng(seed)

    def word() -> str:
        return "".join(generator.choice(list(string.ascii_lowercase), generator.integers(2, 6)))

    def sentence() -> str:
        return " ".join(word() for _ in range(generator.integers(2, 9))).capitalize() + "."

    return [" ".join(sentence() for _ in range(generator.integers(*sentences))) for _ in range(count)]


@pytest.fixture(scope="session")
def generate_stories() -> Callable[..., list[str]]:
    return stories
