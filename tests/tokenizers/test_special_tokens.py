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
    own = train_tokenizer(TokenizerSettings(kind=kind, vocab_size=400, sentinels=10), texts)
    assert own.vocab_size <= 400 and own.vocab_size == plain.vocab_size + 10  # they count towards the size
    assert [own.id_to_token(number) for number in own.sentinels] == [f"<extra_id_{k}>" for k in range(10)]
    assert own.special_mask[list(own.sentinels)].all() and own.special_mask.sum() == plain.special_mask.sum() + 10
    for text in (texts[0], "a <extra_id_3> written by a person"):
        assert own.encode(text).ids.tolist() == plain.encode(text).ids.tolist()
        assert own.encode_ids([text])[0].tolist() == plain.encode_ids([text])[0].tolist()
    ids = own.encode("the cat").ids.tolist()
    assert own.decode([*ids, own.sentinels[2]]) == own.decode(ids)
    own.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.sentinels == own.sentinels == pickle.loads(pickle.dumps(own)).sentinels
    assert again.digest == own.digest
    assert plain.sentinels == ()


@pytest.mark.parametrize(("kind", "size", "sentinels"), [("bpe", 300, 50), ("words", 100, 60)])
def test_too_many_sentinels_are_rejected(kind: str, size: int, sentinels: int) -> None:
    with pytest.raises(ValidationError, match=f"{sentinels} sentinels leave too few of {size} tokens"):
        TokenizerSettings(kind=kind, vocab_size=size, sentinels=sentinels)
