"""Sentinel tokens for span corruption."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from meristem import samples
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(samples.documents("microworld-en?size=30"))


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters", "words"])
def test_every_kind_can_have_sentinels(kind: str, texts: list[str], tmp_path: Path) -> None:
    plain = train_tokenizer(TokenizerSettings(kind=kind, vocab_size=390), texts)
    tokenizer = train_tokenizer(TokenizerSettings(kind=kind, vocab_size=400, sentinels=10), texts)
    assert tokenizer.vocab_size <= 400 and tokenizer.vocab_size == plain.vocab_size + 10  # they count towards the size
    assert [tokenizer.id_to_token(number) for number in tokenizer.sentinels] == [f"<extra_id_{k}>" for k in range(10)]
    assert (
        tokenizer.special_mask[list(tokenizer.sentinels)].all()
        and tokenizer.special_mask.sum() == plain.special_mask.sum() + 10
    )
    for text in (texts[0], "a <extra_id_3> written by a person"):
        assert tokenizer.encode(text).ids.tolist() == plain.encode(text).ids.tolist()
        assert tokenizer.encode_ids([text])[0].tolist() == plain.encode_ids([text])[0].tolist()
    ids = tokenizer.encode("the cat").ids.tolist()
    assert tokenizer.decode([*ids, tokenizer.sentinels[2]]) == tokenizer.decode(ids)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded_tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded_tokenizer.sentinels == tokenizer.sentinels == pickle.loads(pickle.dumps(tokenizer)).sentinels
    assert loaded_tokenizer.digest == tokenizer.digest
    assert plain.sentinels == ()


@pytest.mark.parametrize(("kind", "size", "sentinels"), [("bpe", 300, 50), ("words", 100, 60)])
def test_too_many_sentinels_are_rejected(kind: str, size: int, sentinels: int) -> None:
    with pytest.raises(ValidationError, match=f"{sentinels} sentinels leave too few of {size} tokens"):
        TokenizerSettings(kind=kind, vocab_size=size, sentinels=sentinels)
