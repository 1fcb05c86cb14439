"""Initializing embeddings from word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import SMALL
from run_factory import RunFactory
from vector_files import Words, glove, random_vectors

from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.corpus.word_vector_files import read_vectors
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.init.word_vector_init import WordUsage, _VectorSums, init_from_word_vectors

LETTERS = SMALL["elmo"]


@pytest.fixture
def words() -> Words:
    return random_vectors()


def test_tokens_get_the_vectors_of_words(
    run_factory: RunFactory, words: Words, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = build_learner(run_factory.recipe("bert"), tokenizer).model
    table = model.backbone.embedding().weight
    before = table.detach().clone()
    summary = init_from_word_vectors(model, tokenizer, glove(tmp_path / "glove.txt", words))
    word_vectors = [
        (tokenizer.token_to_id(word), torch.from_numpy(words[word])) for word in ("garden", "boats", "letters")
    ]
    rows = torch.stack([table[number] for number, _ in word_vectors if number is not None])
    expected = torch.stack([vector for _, vector in word_vectors])
    like = torch.nn.functional.cosine_similarity(rows, expected)
    assert len(rows) == 3 and bool((like[1:] > 0.99).all())
    untouched = [tokenizer.token_to_id(token) for token in ("winter", "[MASK]", "sold")]
    assert all(number is not None and torch.equal(table[number], before[number]) for number in untouched)
    assert table.std().item() == pytest.approx(before.std().item(), rel=0.1)
    assert "9 words of 32 dimensions in glove.txt" in summary


def test_vectors_of_another_width_keep_their_neighbours(
    run_factory: RunFactory, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    similar_vector = rng.standard_normal(300).astype(np.float32)
    words = {
        "boats": similar_vector,
        "letters": similar_vector + 0.1 * rng.standard_normal(300).astype(np.float32),
        "winter": rng.standard_normal(300).astype(np.float32),
    }
    model = build_learner(run_factory.recipe("bert"), tokenizer).model
    init_from_word_vectors(model, tokenizer, glove(tmp_path / "wide.txt", words))
    numbers = [tokenizer.token_to_id(word) for word in words]
    boats, letters, winter = (model.backbone.embedding().weight[number] for number in numbers)
    assert torch.dist(boats, letters) < 0.3 * torch.dist(boats, winter)


def test_a_run_starts_from_word_vectors(run_factory: RunFactory, words: Words) -> None:
    glove(run_factory.root / "glove.txt", words)
    result = run_factory.train("from.word_vectors=glove.txt", "tokenizer.kind=wordpiece", family="bert")
    assert result.step == 6
    assert "word vectors: 9 words of 32 dimensions in glove.txt initialized" in run_factory.output.getvalue()
    assert "% of the tokens in the training text" in run_factory.output.getvalue()


# ------------------------------------------------------------ how much each word counts


def _axes(*words: str) -> dict[str, np.ndarray]:
    """Words whose vectors are at right angles, so that a mean shows its parts."""
    return {word: np.eye(32, dtype=np.float32)[number] for number, word in enumerate(words)}


def _shares(tokenizer: Tokenizer, path: Path, token: str, passages: Sequence[str]) -> np.ndarray:
    """Which share of a token's vector came from which word."""
    vector_sums = _VectorSums.zeros(tokenizer.vocab_size, 32)
    batch = list(read_vectors(path))
    vector_sums.add(tokenizer, batch, WordUsage.from_texts(tokenizer, passages).weights([word for word, _ in batch], 1))
    number = tokenizer.token_to_id(token)
    assert number is not None
    has_vector, mean_vectors = vector_sums.means()
    assert has_vector[number]
    return mean_vectors[number].numpy()


def test_a_token_is_the_mean_of_its_words_weighted_by_frequency(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = glove(tmp_path / "glove.txt", _axes("planted", "watered", "painted"))
    texts = ["watered watered painted", "he Watered it"]
    counts = np.array([0 + 1, 3 + 1 / 2, 1 + 1 / 3])
    np.testing.assert_allclose(_shares(tokenizer, path, "##ed", texts)[:3], counts / counts.sum(), rtol=1e-5)
    np.testing.assert_allclose(_shares(tokenizer, path, "##ed", [])[:3], np.array([6, 3, 2]) / 11, rtol=1e-5)
    assert _shares(tokenizer, path, "water", texts)[1] == pytest.approx(1.0)


def test_a_token_that_occurs_twice_in_a_word_counts_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = glove(tmp_path / "glove.txt", _axes("garden", "garden garden"))
    np.testing.assert_allclose(_shares(tokenizer, path, "garden", [])[:2], [2 / 3, 1 / 3], rtol=1e-5)


def test_coverage_is_reported_of_the_vocabulary_and_of_the_text(
    run_factory: RunFactory, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = build_learner(run_factory.recipe("bert"), tokenizer).model
    path = glove(tmp_path / "glove.txt", _axes("boats", "letters"))
    summary = init_from_word_vectors(model, tokenizer, path, ["boats letters boats winter", "boats"])
    assert f"initialized 2 of {tokenizer.vocab_size} token embeddings, which are 80.0% of the tokens" in summary


def test_a_byte_level_tokenizer_finds_words_after_a_space_and_with_a_capital(run_factory: RunFactory) -> None:
    run_factory.train("tokenizer.vocab_size=400", "train.steps=1", run="bpe")
    tokenizer = Tokenizer.load(run_factory.root / "bpe" / "tokenizer.json")
    inside = [
        t for n in range(tokenizer.vocab_size) if (t := tokenizer.id_to_token(n)).startswith("Ġ") and t[1:].isalpha()
    ]
    word = max((token[1:] for token in inside), key=len)
    model = build_learner(run_factory.recipe("gpt2"), tokenizer).model
    before = model.backbone.embedding().weight.detach().clone()
    init_from_word_vectors(model, tokenizer, glove(run_factory.root / "glove.txt", _axes(word.lower(), "zz")))
    number = tokenizer.token_to_id(f"Ġ{word}")
    assert number is not None and not torch.equal(model.backbone.embedding().weight[number], before[number])


def test_an_embedding_that_is_narrower_than_the_model(tokenizer: Tokenizer, words: Words, tmp_path: Path) -> None:
    model_settings = {
        "family": "electra",
        "layers": 1,
        "hidden_size": 32,
        "heads": 2,
        "embedding_size": 16,
        "max_length": 16,
    }
    model = build_learner(resolve_recipe("tiny", {"model": model_settings, "objective": "rtd"}), tokenizer).model
    init_from_word_vectors(model, tokenizer, glove(tmp_path / "glove.txt", words))
    assert model.backbone.embedding().weight.shape[1] == 16
    assert bool(model.backbone.embedding().weight.isfinite().all())


def test_a_model_that_reads_letters_is_refused_with_those_that_look_words_up(
    tokenizer: Tokenizer, words: Words, tmp_path: Path
) -> None:
    model = build_learner(
        resolve_recipe("tiny", {"model": {"family": "elmo", **LETTERS}, "objective": "bilm"}), tokenizer
    ).model
    with pytest.raises(
        MeristemError, match=r"from\.word_vectors: ELMo reads words by their characters.*with word embeddings: bert, "
    ):
        init_from_word_vectors(model, tokenizer, glove(tmp_path / "glove.txt", words))


# ------------------------------------------------------------ files that give nothing


@pytest.mark.parametrize("content", ["", "0 32\n"])
def test_no_word_at_all(run_factory: RunFactory, tokenizer: Tokenizer, content: str) -> None:
    path = run_factory.root / "empty.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(MeristemError, match=r"empty\.txt holds no words"):
        init_from_word_vectors(build_learner(run_factory.recipe("bert"), tokenizer).model, tokenizer, path)


def test_vectors_that_are_all_the_same_poison_nothing(
    run_factory: RunFactory, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = build_learner(run_factory.recipe("bert"), tokenizer).model
    init_from_word_vectors(
        model, tokenizer, glove(tmp_path / "same.txt", {"boats": np.ones(32), "letters": np.ones(32)})
    )
    assert bool(model.backbone.embedding().weight.isfinite().all())


def test_words_nobody_knows(run_factory: RunFactory, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = glove(tmp_path / "other.txt", {"苹果": np.ones(32, np.float32), "梨": np.zeros(32, np.float32)})
    with pytest.raises(MeristemError, match=r"none of the 2 words in .*other\.txt"):
        init_from_word_vectors(build_learner(run_factory.recipe("bert"), tokenizer).model, tokenizer, path)
