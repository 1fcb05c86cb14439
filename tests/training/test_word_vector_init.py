"""Initializing embeddings from word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import SMALL
from place import Place
from vector_files import Words, drawn, glove

from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.corpus.word_vector_files import read_vectors
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.init.word_vector_init import WordUsage, _VectorSums, init_from_word_vectors

LETTERS = SMALL["elmo"]


@pytest.fixture
def words() -> Words:
    return drawn()


def test_tokens_get_the_vectors_of_words(place: Place, words: Words, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = build_learner(place.recipe("bert"), tokenizer).model
    table = model.backbone.embedding().weight
    before = table.detach().clone()
    told = init_from_word_vectors(model, tokenizer, glove(tmp_path / "glove.txt", words))
    whole = [(tokenizer.token_to_id(word), torch.from_numpy(words[word])) for word in ("garden", "boats", "letters")]
    rows = torch.stack([table[number] for number, _ in whole if number is not None])
    wanted = torch.stack([vector for _, vector in whole])
    like = torch.nn.functional.cosine_similarity(rows, wanted)
    assert len(rows) == 3 and bool((like[1:] > 0.99).all())
    untouched = [tokenizer.token_to_id(token) for token in ("winter", "[MASK]", "sold")]
    assert all(number is not None and torch.equal(table[number], before[number]) for number in untouched)
    assert table.std().item() == pytest.approx(before.std().item(), rel=0.1)
    assert "9 words of 32 dimensions in glove.txt" in told


def test_vectors_of_another_width_keep_their_neighbours(place: Place, tokenizer: Tokenizer, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    near = rng.standard_normal(300).astype(np.float32)
    words = {
        "boats": near,
        "letters": near + 0.1 * rng.standard_normal(300).astype(np.float32),
        "winter": rng.standard_normal(300).astype(np.float32),
    }
    model = build_learner(place.recipe("bert"), tokenizer).model
    init_from_word_vectors(model, tokenizer, glove(tmp_path / "wide.txt", words))
    numbers = [tokenizer.token_to_id(word) for word in words]
    boats, letters, winter = (model.backbone.embedding().weight[number] for number in numbers)
    assert torch.dist(boats, letters) < 0.3 * torch.dist(boats, winter)


def test_a_run_starts_from_word_vectors(place: Place, words: Words) -> None:
    glove(place.root / "glove.txt", words)
    ended = place.train("from.word_vectors=glove.txt", "tokenizer.kind=wordpiece", family="bert")
    assert ended.step == 6
    assert "word vectors: 9 words of 32 dimensions in glove.txt initialized" in place.said.getvalue()
    assert "% of the tokens in the training text" in place.said.getvalue()


# ------------------------------------------------------------ how much each word counts


def _axes(*words: str) -> dict[str, np.ndarray]:
    """Words whose vectors are at right angles, so that a mean shows its parts."""
    return {word: np.eye(32, dtype=np.float32)[number] for number, word in enumerate(words)}


def _shares(tokenizer: Tokenizer, path: Path, token: str, passages: Sequence[str]) -> np.ndarray:
    """Which share of a token's vector came from which word."""
    found = _VectorSums.zeros(tokenizer.vocab_size, 32)
    batch = list(read_vectors(path))
    found.add(tokenizer, batch, WordUsage.from_texts(tokenizer, passages).weights([word for word, _ in batch], 1))
    number = tokenizer.token_to_id(token)
    assert number is not None
    met, means = found.means()
    assert met[number]
    return means[number].numpy()


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
    place: Place, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = build_learner(place.recipe("bert"), tokenizer).model
    path = glove(tmp_path / "glove.txt", _axes("boats", "letters"))
    told = init_from_word_vectors(model, tokenizer, path, ["boats letters boats winter", "boats"])
    assert f"initialized 2 of {tokenizer.vocab_size} token embeddings, which are 80.0% of the tokens" in told


def test_a_byte_level_tokenizer_finds_words_after_a_space_and_with_a_capital(place: Place) -> None:
    place.train("tokenizer.vocab_size=400", "train.steps=1", run="bpe")
    tokenizer = Tokenizer.load(place.root / "bpe" / "tokenizer.json")
    inside = [
        t for n in range(tokenizer.vocab_size) if (t := tokenizer.id_to_token(n)).startswith("Ġ") and t[1:].isalpha()
    ]
    word = max((token[1:] for token in inside), key=len)
    model = build_learner(place.recipe("gpt2"), tokenizer).model
    before = model.backbone.embedding().weight.detach().clone()
    init_from_word_vectors(model, tokenizer, glove(place.root / "glove.txt", _axes(word.lower(), "zz")))
    number = tokenizer.token_to_id(f"Ġ{word}")
    assert number is not None and not torch.equal(model.backbone.embedding().weight[number], before[number])


def test_an_embedding_that_is_narrower_than_the_model(tokenizer: Tokenizer, words: Words, tmp_path: Path) -> None:
    told = {"family": "electra", "layers": 1, "hidden_size": 32, "heads": 2, "embedding_size": 16, "max_length": 16}
    model = build_learner(resolve_recipe("tiny", {"model": told, "objective": "rtd"}), tokenizer).model
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
def test_no_word_at_all(place: Place, tokenizer: Tokenizer, content: str) -> None:
    path = place.root / "empty.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(MeristemError, match=r"empty\.txt holds no words"):
        init_from_word_vectors(build_learner(place.recipe("bert"), tokenizer).model, tokenizer, path)


def test_vectors_that_are_all_the_same_poison_nothing(place: Place, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = build_learner(place.recipe("bert"), tokenizer).model
    init_from_word_vectors(
        model, tokenizer, glove(tmp_path / "same.txt", {"boats": np.ones(32), "letters": np.ones(32)})
    )
    assert bool(model.backbone.embedding().weight.isfinite().all())


def test_words_nobody_knows(place: Place, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = glove(tmp_path / "other.txt", {"苹果": np.ones(32, np.float32), "梨": np.zeros(32, np.float32)})
    with pytest.raises(MeristemError, match=r"none of the 2 words in .*other\.txt"):
        init_from_word_vectors(build_learner(place.recipe("bert"), tokenizer).model, tokenizer, path)
