"""Tokenizer training: determinism, vocabulary size, sampling."""

import itertools
import logging
import subprocess
import sys

import pytest

from meristem.config.errors import MeristemError
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import CHUNK, sample_texts, train_tokenizer

KINDS = ["wordpiece", "bpe", "unigram", "characters", "words"]


@pytest.mark.parametrize("kind", KINDS)
def test_same_texts_give_the_same_tokenizer(kind, trained, corpus):
    settings = TokenizerSettings(kind=kind, vocab_size=400)
    for _ in range(3):  # hash maps inside the library are seeded anew each time
        assert train_tokenizer(settings, iter(corpus)).digest == trained[kind].digest


def test_another_process_gives_the_same_tokenizers(trained, corpus, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\x1e".join(corpus), encoding="utf-8")
    program = (
        "import sys; from pathlib import Path; from meristem.tokenizers.train import train_tokenizer; "
        "from meristem.tokenizers.settings import TokenizerSettings as S; "
        "texts = Path(sys.argv[1]).read_text(encoding='utf-8').split('\\x1e'); "
        "print(*[train_tokenizer(S(kind=k, vocab_size=400), texts).digest for k in sys.argv[2:]]); "
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", program, str(path), *KINDS]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert completed.stdout.split() == [trained[kind].digest for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_little_text_gives_fewer_tokens(kind):
    tokenizer = train_tokenizer(TokenizerSettings(kind=kind, vocab_size=4000), ["a bit of text, a bit of text"])
    assert 10 <= tokenizer.vocab_size < 300
    assert len(tokenizer.special_mask) == len(tokenizer.word_start_mask) == tokenizer.vocab_size
    assert tokenizer.unknown not in tokenizer.encode("a bit of text").ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["  \n ", "\t"]])
def test_no_text_is_reported(kind, texts):
    with pytest.raises(MeristemError, match="no text"):
        train_tokenizer(TokenizerSettings(kind=kind, vocab_size=300), texts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_not_exceeded(kind, corpus):
    assert train_tokenizer(TokenizerSettings(kind=kind, vocab_size=280), corpus).vocab_size <= 280


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "words", "characters", "bpe"])
def test_lowercase(kind, corpus):
    tokenizer = train_tokenizer(TokenizerSettings(kind=kind, vocab_size=400, lowercase=True), corpus)
    assert (tokenizer.encode("THE Old Gardener").ids == tokenizer.encode("the old gardener").ids).all()
    if kind != "bpe":  # which holds every byte
        assert not any(map(str.isupper, map(tokenizer.id_to_token, range(5, tokenizer.vocab_size))))


def test_the_rest_of_the_vocabulary_goes_to_rare_characters():
    rare = "".join(chr(0x4E00 + number) for number in range(300))
    tokenizer = train_tokenizer(TokenizerSettings(vocab_size=400, alphabet_size=16), [rare, "的一是" * 50])
    assert tokenizer.unknown not in tokenizer.encode(rare).ids


def test_the_alphabet_setting_limits_the_initial_alphabet(corpus):
    tokenizer = train_tokenizer(TokenizerSettings(vocab_size=64, alphabet_size=20), corpus)
    assert sum(len(tokenizer.id_to_token(number).removeprefix("##")) > 1 for number in range(5, 64)) > 10


def test_sample_is_even_and_bounded():
    texts = [f"{number:05d} " * 200 for number in range(1000)]
    sampled = sample_texts(iter(texts), TokenizerSettings(sample_mb=0.3))
    numbers = [int(text[:5]) for text in sampled.texts]
    gaps = {after - before for before, after in itertools.pairwise(numbers)}
    assert sampled.total_bytes == 1_200_000
    assert 150_000 <= sampled.num_bytes <= 300_000
    assert len(gaps) == 1
    assert numbers[0] == 0
    assert numbers[-1] > 990


def test_one_long_text_is_sampled_in_chunks():
    text = "".join(f"word{number} " for number in range(200_000))
    texts = sample_texts([text], TokenizerSettings(sample_mb=0.5))
    assert texts.num_bytes <= 500_000
    assert "word0 " in texts.texts[0]
    assert max(int(word[4:]) for word in texts.texts[-1].split()) > 150_000
    assert all(word.startswith("word") for part in texts.texts for word in part.split())


def test_a_text_without_spaces_is_chunked_too():
    texts = sample_texts(["字" * (3 * CHUNK)], TokenizerSettings(sample_mb=64))
    assert "".join(texts.texts) == "字" * (3 * CHUNK)
    assert max(map(len, texts.texts)) == CHUNK


def test_the_sample_is_logged_and_progress_is_reported(corpus, caplog):
    progress = []
    with caplog.at_level(logging.INFO, logger="meristem"):
        train_tokenizer(TokenizerSettings(vocab_size=300), corpus, progress=progress.append)
    size = sum(len(text.encode()) for text in corpus)
    assert progress == sorted(progress)
    assert progress[-1] == size
    assert f"sampled evenly from {size / 1e6:.2f} MB" in caplog.text


def test_path_loads_instead_of_training(trained, tmp_path):
    trained["bpe"].save(tmp_path / "tokenizer.json")
    loaded = train_tokenizer(TokenizerSettings(path=str(tmp_path)), iter(()))
    assert isinstance(loaded, Tokenizer)
    assert loaded.digest == trained["bpe"].digest


def test_lone_surrogates_do_not_stop_training():
    assert train_tokenizer(TokenizerSettings(vocab_size=300), ["good text \ud800 more text"]).vocab_size > 5
