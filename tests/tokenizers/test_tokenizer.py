"""The tokenizer: golden ids, offsets, decoding, streaming, word starts."""

import multiprocessing
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.tokenizers.tokenizer import Tokenizer

SPACES = " \n\t\r\x0b\x0c\x1c\x1f\x85\xa0\u3000\u200b\u2003"
MIXED = st.text(st.sampled_from(SPACES + "abTe.,!'s1[]▁#，。园丁é\u0301\x00😀½¨Ġİ"))
ANY = st.text(st.characters(exclude_categories=["Cs"]))
KINDS = ["wordpiece", "bpe", "unigram", "characters", "words"]
# "A small boat, sold." and "水手记得船。": a change of any of these is a change of every store and model made before.
GOLDEN_IDS = {
    "wordpiece": [[28, 172, 142, 1, 187, 27], [82, 74, 91, 71, 88, 54]],
    "bpe": [
        [37, 364, 332, 312, 16, 385, 18],
        [167, 113, 117, 302, 238, 169, 111, 113, 166, 127, 250, 169, 235, 122, 275],
    ],
    "unigram": [[12, 30, 43, 73, 84, 72, 34, 1, 40, 5], [43, 132, 125, 6]],
    "characters": [[34, 5, 9, 26, 10, 12, 12, 5, 22, 14, 10, 8, 1, 5, 9, 14, 12, 13, 17], [63, 55, 71, 52, 68, 27]],
    "words": [[14, 33, 1, 1, 42, 5], [71, 63, 79, 60, 76, 6]],
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def test_golden_english(trained):
    text = "The old sailor couldn't find her boats."
    tokens = {
        kind: [tokenizer_of_kind.id_to_token(number) for number in tokenizer_of_kind.encode(text).ids]
        for kind, tokenizer_of_kind in trained.items()
    }
    assert tokens["wordpiece"] == ["The", "old", "sailor", "couldn", "'", "t", "find", "her", "boats", "."]
    assert tokens["bpe"] == ["The", "Ġold", "Ġsailor", "Ġcouldn", "'t", "Ġfind", "Ġher", "Ġboats", "."]
    assert tokens["words"] == tokens["wordpiece"]
    assert "".join(tokens["characters"]) == text
    assert "".join(tokens["unigram"]) == "▁" + text.replace(" ", "▁")


def test_golden_chinese(trained):
    text = "老园丁种下了苹果树。"
    assert [trained["wordpiece"].id_to_token(number) for number in trained["wordpiece"].encode(text).ids] == list(text)
    assert [trained["words"].id_to_token(number) for number in trained["words"].encode(text).ids] == list(text)


@every_kind
def test_golden_ids(kind, trained):
    ids = [trained[kind].encode(text).ids.tolist() for text in ("A small boat, sold.", "水手记得船。")]
    assert ids == GOLDEN_IDS[kind]


def test_roles(trained):
    for kind, tokenizer_of_kind in trained.items():
        expected_ids = (1, 3, 0, 2, 4) if kind == "bpe" else (0, 1, 2, 3, 4)
        assert (
            tokenizer_of_kind.pad,
            tokenizer_of_kind.unknown,
            tokenizer_of_kind.start,
            tokenizer_of_kind.end,
            tokenizer_of_kind.mask,
        ) == expected_ids
        assert tokenizer_of_kind.special_mask.nonzero()[0].tolist() == [0, 1, 2, 3, 4]


@every_kind
def test_special_names_in_a_text_are_ordinary_text(kind, trained):
    tokenizer_of_kind = trained[kind]
    text = "[CLS] the [SEP] old[MASK] [PAD] [UNK] <s> </s> <pad> <unk> <mask> <|endoftext|>"
    forbidden = {tokenizer_of_kind.pad, tokenizer_of_kind.start, tokenizer_of_kind.end, tokenizer_of_kind.mask}
    for ids in (
        tokenizer_of_kind.encode(text).ids,
        tokenizer_of_kind.encode_ids([text])[0],
        tokenizer_of_kind.encode_batch([text])[0].ids,
    ):
        assert not forbidden & set(ids.tolist())


@every_kind
def test_the_mask_is_recognised_on_request(kind, trained):
    tokenizer_of_kind = trained[kind]
    text = "The [MASK] sold the [MASK]. [SEP]"
    encoded = tokenizer_of_kind.encode(text, special=True)
    masks = np.flatnonzero(encoded.ids == tokenizer_of_kind.mask)
    assert [text[slice(*encoded.offsets[number])] for number in masks] == ["[MASK]", "[MASK]"]
    assert tokenizer_of_kind.end not in encoded.ids
    after = encoded.ids[masks[0] + 1 : masks[1]]
    assert tokenizer_of_kind.decode(after).strip() == "sold the"
    assert [text[start:stop] for start, stop in encoded.offsets[masks[1] + 1 :][:1]] == ["."]
    encoding = tokenizer_of_kind.encode(tokenizer_of_kind.mark_masks(text), special=True)
    assert (encoding.ids == encoded.ids).all()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_space_before_a_mask_belongs_to_it(kind, trained):
    tokenizer_of_kind = trained[kind]
    spaced = tokenizer_of_kind.encode("The old [MASK] sold", special=True).ids.tolist()
    word = tokenizer_of_kind.encode("The old gardener sold").ids.tolist()
    mask_position = spaced.index(tokenizer_of_kind.mask)
    assert spaced[:mask_position] == word[:mask_position]
    assert spaced[mask_position + 1 :] == word[len(word) - len(spaced) + mask_position + 1 :]


@every_kind
def test_offsets_point_into_the_original_text(kind, trained, corpus):
    tokenizer_of_kind = trained[kind]
    for text in [*corpus[::7], "A café  owner,\nher sister."]:
        encoded = tokenizer_of_kind.encode(text)
        for number, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True):
            decoded_token, original_text = tokenizer_of_kind.decode([number]).strip(), text[start:stop]
            if decoded_token and "\ufffd" not in decoded_token:  # a lone ▁ shows nothing, a byte no whole character
                assert original_text == decoded_token
        assert (np.diff(encoded.offsets[:, 0]) >= 0).all()


@every_kind
def test_max_tokens_truncates_ids_and_offsets(kind, trained, corpus):
    encoded, cut = trained[kind].encode(corpus[0]), trained[kind].encode(corpus[0], max_tokens=7)
    assert (cut.ids == encoded.ids[:7]).all()
    assert (cut.offsets == encoded.offsets[:7]).all()
    assert cut.ids.dtype == cut.offsets.dtype == np.int32
    assert len(trained[kind].encode("The [MASK] sold the boats", max_tokens=2, special=True).ids) == 2


def agree(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Fast encoding gives the same ids as the library does for whole texts."""
    encodings = tokenizer.encode_batch(texts)
    for ids, encoding, text in zip(tokenizer.encode_ids(texts), encodings, texts, strict=True):
        assert ids.dtype == np.int32
        assert np.array_equal(ids, encoding.ids), ascii(text)
    boundaries = [np.arange(len(text) + 1) for text in texts]
    located = tokenizer.encode_with_boundaries(texts, boundaries)
    for (ids, tokens), encoding, text_boundaries, text in zip(located, encodings, boundaries, texts, strict=True):
        assert np.array_equal(ids, encoding.ids), ascii(text)
        assert np.array_equal(tokens, np.searchsorted(encoding.offsets[:, 0], text_boundaries)), ascii(text)


@every_kind
def test_fast_encoding_agrees_on_odd_and_ordinary_texts(kind, trained, corpus, unusual_texts):
    assert trained[kind]._pattern is not None
    agree(trained[kind], [*unusual_texts, *corpus[:6], *corpus[-6:]])


@every_kind
@given(texts=st.lists(MIXED | ANY, max_size=4))
@settings(max_examples=60, deadline=None)
def test_fast_encoding_agrees_on_any_text(kind, trained, texts):
    agree(trained[kind], texts)


@every_kind
def test_fast_encoding_agrees_when_the_cache_overflows(kind, trained, corpus, monkeypatch):
    monkeypatch.setattr("meristem.tokenizers.cached_encoding.MAX_PIECES", 20)
    monkeypatch.setattr("meristem.tokenizers.cached_encoding.BATCH_CHARACTERS", 300)
    agree(Tokenizer(trained[kind].json_text), corpus)


@every_kind
def test_no_texts_and_no_boundaries(kind, trained):
    tokenizer_of_kind = trained[kind]
    assert (
        tokenizer_of_kind.encode_ids([])
        == tokenizer_of_kind.encode_batch([])
        == tokenizer_of_kind.encode_with_boundaries([], [])
        == []
    )
    (ids, tokens), (empty, none) = tokenizer_of_kind.encode_with_boundaries(
        ["The old", ""], [np.zeros(0, int), np.array([0])]
    )
    assert len(ids)
    assert len(tokens) == len(empty) == 0
    assert none.tolist() == [0]


def test_a_sentence_begins_at_its_first_visible_token(trained):
    text = "The old boats.  \n A small tree. 园丁"
    for tokenizer_of_kind in trained.values():
        ((ids, (second, third)),) = tokenizer_of_kind.encode_with_boundaries([text], [np.array([18, 32])])
        sentence_text = tokenizer_of_kind.decode(ids[second:third]).strip()
        assert sentence_text.startswith("A")
        assert sentence_text.endswith(".")


@given(text=ANY | MIXED)
@settings(max_examples=120, deadline=None)
def test_bytes_decode_exactly(trained, text):
    assert trained["bpe"].decode(trained["bpe"].encode(text).ids) == text


@given(text=st.text(alphabet="The old gardner\n .,园丁船"))
@settings(max_examples=60, deadline=None)
def test_known_characters_decode_exactly(trained, text):
    known_text = "".join(character for character in text if trained["characters"].token_to_id(character) is not None)
    assert trained["characters"].decode(trained["characters"].encode(known_text).ids) == known_text


@pytest.mark.parametrize(
    "text",
    ["The old gardener remembered the small boats.", "Nobody else couldn't find the boats.", "老园丁种下了苹果树。"],
)
def test_wordpiece_decodes_with_the_spaces_of_its_language(trained, text):
    for kind in ("wordpiece", "words"):
        assert trained[kind].decode(trained[kind].encode(text).ids) == text
    assert trained["wordpiece"].decode(trained["wordpiece"].encode("老 园 丁").ids) == "老园丁"


def test_special_tokens_are_decoded_on_request(trained):
    wordpiece = trained["wordpiece"]
    ids = [wordpiece.start, *wordpiece.encode("The old").ids, wordpiece.end]
    assert wordpiece.decode(ids) == "The old"
    assert wordpiece.decode(ids, skip_special=False) == "[CLS] The old [SEP]"


@every_kind
@given(numbers=st.lists(st.integers(0, 10**6), max_size=30), skip=st.booleans())
@settings(max_examples=60, deadline=None)
def test_streaming_equals_decode(kind, trained, numbers, skip):
    tokenizer_of_kind = trained[kind]
    ids = [number % tokenizer_of_kind.vocab_size for number in numbers]
    stream = tokenizer_of_kind.stream_decoder(skip_special=skip)
    assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer_of_kind.decode(ids, skip_special=skip)


def test_streaming_waits_for_complete_characters(trained):
    ids = trained["bpe"].encode("a😀b").ids
    stream = trained["bpe"].stream_decoder()
    given_out = [stream.push(int(number)) for number in ids]
    assert given_out == ["a", "", "", "", "😀", "b"]
    cut = trained["bpe"].stream_decoder()
    assert [cut.push(int(number)) for number in ids[:3]] == ["a", "", ""]
    assert cut.finish() == "\ufffd"


def test_bytes_decode_as_the_library_does(trained):
    bpe = trained["bpe"]
    rng = np.random.default_rng(3)
    for _ in range(200):
        ids = rng.integers(5, bpe.vocab_size, 12).tolist()
        assert bpe.decode(ids) == bpe._library.decode(ids)


def test_starts_word(trained):
    def starts(kind: str, token: str) -> bool:
        return bool(trained[kind].word_start_mask[trained[kind].token_to_id(token)])

    assert starts("wordpiece", "The")
    assert starts("wordpiece", "园")
    assert not starts("wordpiece", "##e")
    assert trained["words"].word_start_mask.all()
    for token in ("Ġthe", "Ġ", ".", "'", "å"):  # å: the first byte of 园
        assert starts("bpe", token), token
    for token in ("e", "n", "Ń"):  # Ń: a byte inside a character
        assert not starts("bpe", token), token
    assert starts("unigram", "▁the")
    assert starts("unigram", "园")
    assert not starts("unigram", "e")
    assert starts("characters", " ")
    assert starts("characters", "园")
    assert not starts("characters", "e")
    for tokenizer_of_kind in trained.values():
        assert tokenizer_of_kind.word_start_mask[tokenizer_of_kind.special_mask].all()


@every_kind
def test_word_starts_of_running_text(kind, trained):
    tokenizer_of_kind = trained[kind]
    ids = tokenizer_of_kind.encode(" The old gardener planted the apple tree.").ids
    indices = np.flatnonzero(tokenizer_of_kind.word_start_mask[ids])
    words = [tokenizer_of_kind.decode(part).strip() for part in np.split(ids, indices[1:])]
    joined = [word for word in words if word]
    assert joined == ["The", "old", "gardener", "planted", "the", "apple", "tree", "."]


def _encode(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode_ids(["The old gardener"])[0].tolist()


@every_kind
def test_it_can_be_pickled_for_workers(kind, trained):
    tokenizer_of_kind = trained[kind]
    unpickled = pickle.loads(pickle.dumps(tokenizer_of_kind))
    assert unpickled.digest == tokenizer_of_kind.digest
    tokenizer_of_kind.encode_ids(["The old"])  # the memo stays behind
    with multiprocessing.get_context("fork").Pool(1) as workers:
        assert workers.apply(_encode, (tokenizer_of_kind,)) == _encode(tokenizer_of_kind)


@every_kind
def test_lone_surrogates_are_replaced_and_offsets_hold(kind, trained):
    text = "old \ud800 tree\udfff"
    encoded = trained[kind].encode(text)
    assert np.array_equal(trained[kind].encode_ids([text])[0], encoded.ids)
    assert "tree" in "".join(text[start:stop] for start, stop in encoded.offsets)
    assert (encoded.ids == trained[kind].encode(text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")).ids).all()


def test_tokens_and_ids(trained):
    for tokenizer_of_kind in trained.values():
        assert all(
            tokenizer_of_kind.token_to_id(tokenizer_of_kind.id_to_token(number)) == number
            for number in range(tokenizer_of_kind.vocab_size)
        )
        assert tokenizer_of_kind.token_to_id("no such token") is None
