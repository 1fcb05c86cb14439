"""Encoding batches of documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset import build as building
from meristem.dataset.build import build_dataset
from meristem.dataset.encode_documents import encode_texts
from meristem.dataset.settings import DatasetSettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

TEXTS = ["The cat saw a Zyzzyva. The cat ran.", "", "A quokka! 一只猫。", "The dog saw the cat, naïvely."]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """Whole words, few enough that some are unknown."""
    text = "The cat saw a dog. The dog ran, a cat saw the dog."
    return train_tokenizer(TokenizerSettings(kind="words", vocab_size=64), iter([text] * 9))


def test_a_batch_holds_documents_end_to_end(tokenizer: Tokenizer) -> None:
    pack = encode_texts(["Hi. Go!", "  ", "你好"], tokenizer)
    hi, you = (ids.tolist() for ids in tokenizer.encode_ids(["Hi. Go!", "你好"]))
    assert pack.tokens.tolist() == [*hi, tokenizer.end, *you, tokenizer.end]
    assert pack.lengths.tolist() == [len(hi) + 1, 0, 3]
    assert pack.sentence_starts.tolist() == [0, 3, len(hi) + 1]
    assert pack.byte_sizes.tolist() == [7, 0, 6]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab .!?A。你\n", max_size=12), min_size=1, max_size=6), st.data())
def test_a_selection_of_a_batch_is_the_batch_of_that_selection(
    tokenizer: Tokenizer, texts: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(texts) - 1))
    last = data.draw(st.integers(first + 1, len(texts)))
    part, encoded = encode_texts(texts, tokenizer).select(first, last), encode_texts(texts[first:last], tokenizer)
    for name in ("tokens", "lengths", "sentence_starts", "byte_sizes"):
        assert getattr(part, name).tolist() == getattr(encoded, name).tolist()
    assert part.fingerprints == encoded.fingerprints


def test_unknown_words_keep_their_spelling(words: Tokenizer, tmp_path: Path) -> None:
    documents = [Document(text, "a:1") for text in TEXTS]
    stream = build_dataset(documents, words, tmp_path, DatasetSettings(), processes=1, keep_words=True).split("train")
    ids, spellings = stream.tokens(0, len(stream)), [word.decode() for word in stream.spellings(0, len(stream))]
    expected = [word for text in TEXTS if text for word in [*_spelled(words, text), ""]]
    assert spellings == expected
    spelled = {id: {word for word, other in zip(spellings, ids, strict=True) if other == id} for id in ids}
    assert {"Zyzzyva", "quokka", "naïvely"} <= spelled[words.unknown]
    assert spelled[words.end] == {""}
    assert stream.spellings(3, 6) == [word.encode() for word in expected[3:6]]


def _spelled(words: Tokenizer, text: str) -> list[str]:
    return [text[start:stop] for start, stop in words.encode(text).offsets.tolist()]


def test_word_datasets_do_not_depend_on_batches_processes_or_interruptions(
    words: Tokenizer, tmp_path: Path, generate_stories: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(text, "a:1") for text in generate_stories(60)]
    small = DatasetSettings(shard_tokens=700)
    build_dataset(documents, words, tmp_path / "one", small, processes=1, keep_words=True)
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 500)

    def stopping() -> object:
        yield from documents[:45]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_dataset(stopping(), words, tmp_path / "two", small, processes=1, keep_words=True)
    assert (tmp_path / "two" / "journal.json").exists()
    build_dataset(documents, words, tmp_path / "two", small, processes=2, keep_words=True)
    names = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert any(name.suffix == ".spellings" for name in names)
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in names)


def test_keeping_words_changes_neither_ids_nor_sentences(words: Tokenizer) -> None:
    plain, encoded = encode_texts(TEXTS, words), encode_texts(TEXTS, words, keep_words=True)
    assert plain.tokens.tolist() == encoded.tokens.tolist()
    assert plain.sentence_starts.tolist() == encoded.sentence_starts.tolist()
    assert encoded.spellings is not None
    assert len(encoded.spellings.ids) == len(encoded.tokens)


def test_a_tokenizer_without_an_end_is_refused(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "end", None)
    with pytest.raises(MeristemError, match="no end token"):
        encode_texts(["One."], tokenizer)


def test_ids_have_the_narrowest_type(tokenizer: Tokenizer) -> None:
    assert encode_texts(["One."], tokenizer).tokens.dtype == np.uint16
