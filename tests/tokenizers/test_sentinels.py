"""Sentinels: tokens kept free for objectives that hide spans."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from meristem import samples
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(samples.documents("microworld-en?size=30"))


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters", "words"])
def test_every_kind_can_keep_some_free(kind: str, texts: list[str], tmp_path: Path) -> None:
    plain = train(TokenizerSettings(kind=kind, size=390), texts)
    own = train(TokenizerSettings(kind=kind, size=400, sentinels=10), texts)
    assert own.size <= 400 and own.size == plain.size + 10  # they count towards the size
    assert [own.token(number) for number in own.sentinels] == [f"<extra_id_{k}>" for k in range(10)]
    assert own.specials[list(own.sentinels)].all() and own.specials.sum() == plain.specials.sum() + 10
    for text in (texts[0], "a <extra_id_3> written by a person"):
        assert own.encode(text).ids.tolist() == plain.encode(text).ids.tolist()
        assert own.ids_many([text])[0].tolist() == plain.ids_many([text])[0].tolist()
    ids = own.encode("the cat").ids.tolist()
    assert own.decode([*ids, own.sentinels[2]]) == own.decode(ids)
    own.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.sentinels == own.sentinels == pickle.loads(pickle.dumps(own)).sentinels
    assert again.digest == own.digest
    assert plain.sentinels == ()


@pytest.mark.parametrize(("kind", "size", "sentinels"), [("bpe", 300, 50), ("words", 100, 60)])
def test_too_many_leave_no_room_for_words(kind: str, size: int, sentinels: int) -> None:
    with pytest.raises(ValidationError, match=f"{sentinels} sentinels leave too little of a size of {size}"):
        TokenizerSettings(kind=kind, size=size, sentinels=sentinels)
