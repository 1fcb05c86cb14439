"""Pairs and pictures in shards: where targets begin, which picture is whose, whatever the batches and stops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.corpus.document import Document
from meristem.corpus.pictures import drawn
from meristem.corpus.sides import PAIR, PICTURE
from meristem.errors import MeristemError
from meristem.samples.microworld import draw, scene
from meristem.store import build as building
from meristem.store.build import build
from meristem.store.settings import StoreSettings
from meristem.store.sides import pack_of
from meristem.store.store import Store, Stream
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train

SMALL = StoreSettings(shard_tokens=60, picture=16)
ALPHABET = "ab .!?A。你\n"


def pair(source: str, target: str) -> Document:
    return Document(source + PAIR + target, "test:1")


def pictures(count: int) -> list[Document]:
    return [Document(f"{drawn(f'microworld:0:{n}')}{PICTURE}caption {n}", f"test:{n}") for n in range(count)]


def read(stream: Stream, number: int) -> tuple[list[int], list[int]]:
    span, middle = stream.document(number), stream.middle(number)
    return stream.tokens(span.start, middle).tolist(), stream.tokens(middle, span.text_stop).tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.text(ALPHABET, max_size=9), st.text(ALPHABET, max_size=9)), min_size=1, max_size=6), st.data()
)
def test_pairs_come_apart_as_they_were(tokenizer: Tokenizer, pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    texts = [source + PAIR + target for source, target in pairs]
    pack = pack_of(texts, tokenizer)
    ids = [[one.tolist() for one in tokenizer.ids_many(list(both))] for both in pairs]
    whole = [both for both in ids if all(both)]
    assert pack.tokens.tolist() == [token for a, b in whole for token in [*a, *b, tokenizer.end]]
    assert pack.spans.tolist() == [len(a) + len(b) + 1 if a and b else 0 for a, b in ids]
    starts = np.cumsum([0, *(len(a) + len(b) + 1 for a, b in whole)])[:-1]
    assert pack.middles is not None
    assert pack.middles.tolist() == [int(start) + len(a) for start, (a, _) in zip(starts, whole, strict=True)]
    assert set(starts.tolist()) | set(pack.middles.tolist()) <= set(pack.sentences.tolist())
    first = data.draw(st.integers(0, len(texts) - 1))
    last = data.draw(st.integers(first + 1, len(texts)))
    part, alone = pack.part(first, last), pack_of(texts[first:last], tokenizer)
    for name in ("tokens", "spans", "sentences", "sizes", "middles"):
        assert getattr(part, name).tolist() == getattr(alone, name).tolist(), name
    assert part.fingerprints == alone.fingerprints


def test_a_store_of_pairs_over_many_shards(tokenizer: Tokenizer, tmp_path: Path) -> None:
    made = [pair(f"Source {n} ab." * (1 + n % 3), f"Target {n}!") for n in range(60)]
    store = build(made, tokenizer, tmp_path, SMALL, processes=1)
    stream = store.split("train")
    assert len(store.manifest.splits["train"]) > 5 and stream.paired and not stream.pictured
    for number, document in enumerate(made):
        expected = [one.tolist() for one in tokenizer.ids_many(document.text.split(PAIR))]
        assert list(read(stream, number)) == expected
    assert stream.bytes == sum(len(document.text.encode()) - 1 for document in made)


def test_processes_and_stops_leave_no_trace(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "BATCH_DOCUMENTS", 7)
    for name, made in {"pairs": [pair(f"a {n}", f"b {n}.") for n in range(50)], "pictures": pictures(50)}.items():
        one = build(made, tokenizer, tmp_path / name / "one", SMALL, processes=1)
        two = build(made, tokenizer, tmp_path / name / "two", SMALL, processes=2)
        build(made[:23], tokenizer, tmp_path / name / "stopped", SMALL, processes=1)
        assert one.manifest == two.manifest
        grown = build(made, tokenizer, tmp_path / name / "stopped", SMALL, processes=1).split("train")
        stream = one.split("train")
        assert (grown.tokens(0, len(stream)) == stream.tokens(0, len(stream))).all()
        if name == "pictures":
            assert all((grown.picture(n) == stream.picture(n)).all() for n in range(50))
        else:
            assert [grown.middle(n) for n in range(50)] == [stream.middle(n) for n in range(50)]


def test_every_document_keeps_its_own_picture(tokenizer: Tokenizer, tmp_path: Path) -> None:
    made = pictures(40)
    made[7] = Document(f"{drawn('microworld:0:7')}{PICTURE} ", "test:7")  # nothing is told of it: it is no document
    stream = build(made, tokenizer, tmp_path, SMALL, processes=1).split("train")
    assert stream.pictured and not stream.paired and stream.documents == 39
    for place, number in enumerate(n for n in range(40) if n != 7):
        assert (stream.picture(place) == draw(scene(0, number), 16)).all()


@pytest.mark.parametrize("kind", ["middles", "pictures"])
def test_damage_is_found(tokenizer: Tokenizer, tmp_path: Path, kind: str) -> None:
    made = pictures(5) if kind == "pictures" else [pair("a", "b")] * 5
    build(made, tokenizer, tmp_path, SMALL, processes=1)
    file = tmp_path / "train" / f"00000.{kind}"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(MeristemError, match=rf"00000\.{kind}: damaged .*checksum"):
        Store.open(tmp_path)


def test_batches_weigh_pictures(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays flat: no batch holds more pixels than it would hold characters."""
    seen: list[int] = []
    real = building.pack_of
    monkeypatch.setattr(building, "pack_of", lambda texts, **k: seen.append(len(texts)) or real(texts, **k))
    build(pictures(300), tokenizer, tmp_path, StoreSettings(picture=64), processes=1)
    assert sum(seen) == 300
    assert max(seen) <= building.BATCH_CHARACTERS // (64 * 64 * 3) + 1


def test_a_store_of_words_keeps_the_spelling_of_both_sides(tmp_path: Path) -> None:
    text = "The cat saw a dog. The dog ran, a cat saw the dog."
    words = train(TokenizerSettings(kind="words", size=64), iter([text] * 9))
    pairs = [("The quokka ran.", "A zyzzyva!"), ("a", " "), ("dog", "saw a cat")]
    made = [pair(*both) for both in pairs]
    stream = build(made, words, tmp_path, StoreSettings(), processes=1, keep_words=True).split("train")
    spelled = [word.decode() for word in stream.spellings(0, len(stream))]
    assert spelled == ["The", "quokka", "ran", ".", "A", "zyzzyva", "!", "", "dog", "saw", "a", "cat", ""]
    assert [stream.middle(number) for number in range(2)] == [4, 9]
