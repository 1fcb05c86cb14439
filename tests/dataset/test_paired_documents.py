"""Pairs and images in shards: target starts and images are right, whatever the batches and interruptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR
from meristem.data.images import builtin_image_reference
from meristem.dataset import build as building
from meristem.dataset.build import build_dataset
from meristem.dataset.paired_documents import encode_batch
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.samples.microworld import draw, generate_scene
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

SMALL = DatasetSettings(shard_tokens=60, image_size=16)
ALPHABET = "ab .!?A。你\n"


def pair(source: str, target: str) -> Document:
    return Document(source + PAIR_SEPARATOR + target, "test:1")


def pictures(count: int) -> list[Document]:
    return [
        Document(f"{builtin_image_reference(f'microworld:0:{n}')}{IMAGE_SEPARATOR}caption {n}", f"test:{n}")
        for n in range(count)
    ]


def source_and_target_ids(stream: TokenStream, number: int) -> tuple[list[int], list[int]]:
    span, middle = stream.document(number), stream.target_start(number)
    return stream.tokens(span.start, middle).tolist(), stream.tokens(middle, span.text_stop).tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.text(ALPHABET, max_size=9), st.text(ALPHABET, max_size=9)), min_size=1, max_size=6), st.data()
)
def test_pairs_come_apart_as_they_were(tokenizer: Tokenizer, pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    texts = [source + PAIR_SEPARATOR + target for source, target in pairs]
    pack = encode_batch(texts, tokenizer)
    ids = [[token_ids.tolist() for token_ids in tokenizer.encode_ids(list(sides))] for sides in pairs]
    complete_pairs = [id_lists for id_lists in ids if all(id_lists)]
    assert pack.tokens.tolist() == [token for a, b in complete_pairs for token in [*a, *b, tokenizer.end]]
    assert pack.lengths.tolist() == [len(a) + len(b) + 1 if a and b else 0 for a, b in ids]
    starts = np.cumsum([0, *(len(a) + len(b) + 1 for a, b in complete_pairs)])[:-1]
    assert pack.target_starts is not None
    assert pack.target_starts.tolist() == [
        int(start) + len(a) for start, (a, _) in zip(starts, complete_pairs, strict=True)
    ]
    assert set(starts.tolist()) | set(pack.target_starts.tolist()) <= set(pack.sentence_starts.tolist())
    first = data.draw(st.integers(0, len(texts) - 1))
    last = data.draw(st.integers(first + 1, len(texts)))
    part, single_batch = pack.select(first, last), encode_batch(texts[first:last], tokenizer)
    for name in ("tokens", "lengths", "sentence_starts", "byte_sizes", "target_starts"):
        assert getattr(part, name).tolist() == getattr(single_batch, name).tolist(), name
    assert part.fingerprints == single_batch.fingerprints


def test_a_dataset_of_pairs_over_many_shards(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [pair(f"Source {n} ab." * (1 + n % 3), f"Target {n}!") for n in range(60)]
    store = build_dataset(documents, tokenizer, tmp_path, SMALL, processes=1)
    stream = store.split("train")
    assert len(store.manifest.splits["train"]) > 5 and stream.has_pairs and not stream.has_images
    for number, document in enumerate(documents):
        expected = [token_ids.tolist() for token_ids in tokenizer.encode_ids(document.text.split(PAIR_SEPARATOR))]
        assert list(source_and_target_ids(stream, number)) == expected
    assert stream.bytes == sum(len(document.text.encode()) - 1 for document in documents)


def test_processes_and_interruptions_leave_no_trace(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "BATCH_DOCUMENTS", 7)
    for name, documents in {"pairs": [pair(f"a {n}", f"b {n}.") for n in range(50)], "pictures": pictures(50)}.items():
        dataset = build_dataset(documents, tokenizer, tmp_path / name / "one", SMALL, processes=1)
        second_dataset = build_dataset(documents, tokenizer, tmp_path / name / "two", SMALL, processes=2)
        build_dataset(documents[:23], tokenizer, tmp_path / name / "stopped", SMALL, processes=1)
        assert dataset.manifest == second_dataset.manifest
        resumed = build_dataset(documents, tokenizer, tmp_path / name / "stopped", SMALL, processes=1).split("train")
        stream = dataset.split("train")
        assert (resumed.tokens(0, len(stream)) == stream.tokens(0, len(stream))).all()
        if name == "pictures":
            assert all((resumed.image(n) == stream.image(n)).all() for n in range(50))
        else:
            assert [resumed.target_start(n) for n in range(50)] == [stream.target_start(n) for n in range(50)]


def test_every_document_keeps_its_own_image(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = pictures(40)
    documents[7] = Document(
        f"{builtin_image_reference('microworld:0:7')}{IMAGE_SEPARATOR} ", "test:7"
    )  # nothing is told of it: it is no document
    stream = build_dataset(documents, tokenizer, tmp_path, SMALL, processes=1).split("train")
    assert stream.has_images and not stream.has_pairs and stream.documents == 39
    for index, number in enumerate(n for n in range(40) if n != 7):
        assert (stream.image(index) == draw(generate_scene(0, number), 16)).all()


@pytest.mark.parametrize("kind", ["middles", "pictures"])
def test_damage_is_found(tokenizer: Tokenizer, tmp_path: Path, kind: str) -> None:
    documents = pictures(5) if kind == "pictures" else [pair("a", "b")] * 5
    build_dataset(documents, tokenizer, tmp_path, SMALL, processes=1)
    file = tmp_path / "train" / f"00000.{kind}"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(MeristemError, match=rf"00000\.{kind}: damaged .*checksum"):
        TokenDataset.open(tmp_path)


def test_batches_count_the_pixels_of_images(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory stays flat: no batch holds more pixels than it would hold characters."""
    sizes: list[int] = []
    real = building.encode_batch
    monkeypatch.setattr(building, "encode_batch", lambda texts, **k: sizes.append(len(texts)) or real(texts, **k))
    build_dataset(pictures(300), tokenizer, tmp_path, DatasetSettings(image_size=64), processes=1)
    assert sum(sizes) == 300
    assert max(sizes) <= building.BATCH_CHARACTERS // (64 * 64 * 3) + 1


def test_a_word_dataset_keeps_the_spelling_of_both_sides(tmp_path: Path) -> None:
    text = "The cat saw a dog. The dog ran, a cat saw the dog."
    words = train_tokenizer(TokenizerSettings(kind="words", vocab_size=64), iter([text] * 9))
    pairs = [("The quokka ran.", "A zyzzyva!"), ("a", " "), ("dog", "saw a cat")]
    documents = [pair(*sides) for sides in pairs]
    stream = build_dataset(documents, words, tmp_path, DatasetSettings(), processes=1, keep_words=True).split("train")
    spelled = [word.decode() for word in stream.spellings(0, len(stream))]
    assert spelled == ["The", "quokka", "ran", ".", "A", "zyzzyva", "!", "", "dog", "saw", "a", "cat", ""]
    assert [stream.target_start(number) for number in range(2)] == [4, 9]
