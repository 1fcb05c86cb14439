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
    tokens = {kind: [one.id_to_token(number) for number in one.encode(text).ids] for kind, one in trained.items()}
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
    got = [trained[kind].encode(text).ids.tolist() for text in ("A small boat, sold.", "水手记得船。")]
    assert got == GOLDEN_IDS[kind]


def test_roles(trained):
    for kind, one in trained.items():
        want = (1, 3, 0, 2, 4) if kind == "bpe" else (0, 1, 2, 3, 4)
        assert (one.pad, one.unknown, one.start, one.end, one.mask) == want
        assert one.special_mask.nonzero()[0].tolist() == [0, 1, 2, 3, 4]


@every_kind
def test_special_names_in_a_text_are_ordinary_text(kind, trained):
    one = trained[kind]
    text = "[CLS] the [SEP] old[MASK] [PAD] [UNK] <s> </s> <pad> <unk> <mask> <|endoftext|>"
    forbidden = {one.pad, one.start, one.end, one.mask}
    for ids in (one.encode(text).ids, one.encode_ids([text])[0], one.encode_batch([text])[0].ids):
        assert not forbidden & set(ids.tolist())


@every_kind
def test_the_mask_is_recognised_on_request(kind, trained):
    one = trained[kind]
    text = "The [MASK] sold the [MASK]. [SEP]"
    encoded = one.encode(text, special=True)
    masks = np.flatnonzero(encoded.ids == one.mask)
    assert [text[slice(*encoded.offsets[number])] for number in masks] == ["[MASK]", "[MASK]"]
    assert one.end not in encoded.ids
    after = encoded.ids[masks[0] + 1 : masks[1]]
    assert one.decode(after).strip() == "sold the"
    assert [text[start:stop] for start, stop in encoded.offsets[masks[1] + 1 :][:1]] == ["."]
    encoding = one.encode(one.mark_masks(text), special=True)
    assert (encoding.ids == encoded.ids).all()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_space_before_a_mask_belongs_to_it(kind, trained):
    one = trained[kind]
    spaced = one.encode("The old [MASK] sold", special=True).ids.tolist()
    word = one.encode("The old gardener sold").ids.tolist()
    at = spaced.index(one.mask)
    assert spaced[:at] == word[:at]
    assert spaced[at + 1 :] == word[len(word) - len(spaced) + at + 1 :]


@every_kind
def test_offsets_point_into_the_original_text(kind, trained, corpus):
    one = trained[kind]
    for text in [*corpus[::7], "A café  owner,\nher sister."]:
        encoded = one.encode(text)
        for number, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True):
            shown, written = one.decode([number]).strip(), text[start:stop]
            if shown and "\ufffd" not in shown:  # a lone ▁ shows nothing, a byte no whole character
                assert written == shown
        assert (np.diff(encoded.offsets[:, 0]) >= 0).all()


@every_kind
def test_max_tokens_truncates_ids_and_offsets(kind, trained, corpus):
    encoded, cut = trained[kind].encode(corpus[0]), trained[kind].encode(corpus[0], max_tokens=7)
    assert (cut.ids == encoded.ids[:7]).all()
    assert (cut.offsets == encoded.offsets[:7]).all()
    assert cut.ids.dtype == cut.offsets.dtype == np.int32
    assert len(trained[kind].encode("The [MASK] sold the boats", max_tokens=2, special=True).ids) == 2


def agree(one: Tokenizer, texts: list[str]) -> None:
    """Fast encoding gives the same ids as the library does for whole texts."""
    encodings = one.encode_batch(texts)
    for ids, encoding, text in zip(one.encode_ids(texts), encodings, texts, strict=True):
        assert ids.dtype == np.int32
        assert np.array_equal(ids, encoding.ids), ascii(text)
    boundaries = [np.arange(len(text) + 1) for text in texts]
    located = one.encode_with_boundaries(texts, boundaries)
    for (ids, tokens), encoding, at, text in zip(located, encodings, boundaries, texts, strict=True):
        assert np.array_equal(ids, encoding.ids), ascii(text)
        assert np.array_equal(tokens, np.searchsorted(encoding.offsets[:, 0], at)), ascii(text)


@every_kind
def test_fast_encoding_agrees_on_odd_and_ordinary_texts(kind, trained, corpus, odd):
    assert trained[kind]._pattern is not None
    agree(trained[kind], [*odd, *corpus[:6], *corpus[-6:]])


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
    one = trained[kind]
    assert one.encode_ids([]) == one.encode_batch([]) == one.encode_with_boundaries([], []) == []
    (ids, tokens), (empty, none) = one.encode_with_boundaries(["The old", ""], [np.zeros(0, int), np.array([0])])
    assert len(ids)
    assert len(tokens) == len(empty) == 0
    assert none.tolist() == [0]


def test_a_sentence_begins_at_its_first_visible_token(trained):
    text = "The old boats.  \n A small tree. 园丁"
    for one in trained.values():
        ((ids, (second, third)),) = one.encode_with_boundaries([text], [np.array([18, 32])])
        shown = one.decode(ids[second:third]).strip()
        assert shown.startswith("A")
        assert shown.endswith(".")


@given(text=ANY | MIXED)
@settings(max_examples=120, deadline=None)
def test_bytes_decode_exactly(trained, text):
    assert trained["bpe"].decode(trained["bpe"].encode(text).ids) == text


@given(text=st.text(alphabet="The old gardner\n .,园丁船"))
@settings(max_examples=60, deadline=None)
def test_known_characters_decode_exactly(trained, text):
    known = "".join(character for character in text if trained["characters"].token_to_id(character) is not None)
    assert trained["characters"].decode(trained["characters"].encode(known).ids) == known


@pytest.mark.parametrize(
    "text",
    ["The old gardener remembered the small boats.", "Nobody else couldn't find the boats.", "老园丁种下了苹果树。"],
)
def test_wordpiece_decodes_with_the_spaces_of_its_language(trained, text):
    for kind in ("wordpiece", "words"):
        assert trained[kind].decode(trained[kind].encode(text).ids) == text
    assert trained["wordpiece"].decode(trained["wordpiece"].encode("老 园 丁").ids) == "老园丁"


def test_special_tokens_are_decoded_on_request(trained):
    one = trained["wordpiece"]
    ids = [one.start, *one.encode("The old").ids, one.end]
    assert one.decode(ids) == "The old"
    assert one.decode(ids, skip_special=False) == "[CLS] The old [SEP]"


@every_kind
@given(numbers=st.lists(st.integers(0, 10**6), max_size=30), skip=st.booleans())
@settings(max_examples=60, deadline=None)
def test_streaming_equals_decode(kind, trained, numbers, skip):
    one = trained[kind]
    ids = [number % one.vocab_size for number in numbers]
    stream = one.stream_decoder(skip_special=skip)
    assert "".join(map(stream.push, ids)) + stream.finish() == one.decode(ids, skip_special=skip)


def test_streaming_waits_for_complete_characters(trained):
    ids = trained["bpe"].encode("a😀b").ids
    stream = trained["bpe"].stream_decoder()
    given_out = [stream.push(int(number)) for number in ids]
    assert given_out == ["a", "", "", "", "😀", "b"]
    cut = trained["bpe"].stream_decoder()
    assert [cut.push(int(number)) for number in ids[:3]] == ["a", "", ""]
    assert cut.finish() == "\ufffd"


def test_bytes_decode_as_the_library_does(trained):
    one = trained["bpe"]
    rng = np.random.default_rng(3)
    for _ in range(200):
        ids = rng.integers(5, one.vocab_size, 12).tolist()
        assert one.decode(ids) == one._library.decode(ids)


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
    for one in trained.values():
        assert one.word_start_mask[one.special_mask].all()


@every_kind
def test_word_starts_of_running_text(kind, trained):
    one = trained[kind]
    ids = one.encode(" The old gardener planted the apple tree.").ids
    indices = np.flatnonzero(one.word_start_mask[ids])
    words = [one.decode(part).strip() for part in np.split(ids, indices[1:])]
    joined = [word for word in words if word]
    assert joined == ["The", "old", "gardener", "planted", "the", "apple", "tree", "."]


def _encode(one: Tokenizer) -> list[int]:
    return one.encode_ids(["The old gardener"])[0].tolist()


@every_kind
def test_it_can_be_pickled_for_workers(kind, trained):
    one = trained[kind]
    again = pickle.loads(pickle.dumps(one))
    assert again.digest == one.digest
    one.encode_ids(["The old"])  # the memo stays behind
    with multiprocessing.get_context("fork").Pool(1) as workers:
        assert workers.apply(_encode, (one,)) == _encode(one)


@every_kind
def test_lone_surrogates_are_replaced_and_offsets_hold(kind, trained):
    text = "old \ud800 tree\udfff"
    encoded = trained[kind].encode(text)
    assert np.array_equal(trained[kind].encode_ids([text])[0], encoded.ids)
    assert "tree" in "".join(text[start:stop] for start, stop in encoded.offsets)
    assert (encoded.ids == trained[kind].encode(text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")).ids).all()


def test_tokens_and_ids(trained):
    for one in trained.values():
        assert all(one.token_to_id(one.id_to_token(number)) == number for number in range(one.vocab_size))
        assert one.token_to_id("no such token") is None
