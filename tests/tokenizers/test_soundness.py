"""What a tokenizer.json may ask for."""

import json

import pytest

from meristem.errors import MeristemError
from meristem.tokenizers.soundness import check, check_unknown, explodes
from meristem.tokenizers.tokenizer import Tokenizer

PUBLISHED = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"[\s\S]",
    r"\p{P}",
]


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_patterns_of_published_tokenizers_end(pattern):
    assert not explodes(pattern)


@pytest.mark.parametrize("pattern", [
    "(a+)+$", "(a|aa)+$", "(x+x+)+y", "(?:(?:a*)*)*", "((a)*b?)*c", "(a?){100}", r"([a-z]+)*$", r"(\w|\s)+x",
    "(a*){2,}",
])  # fmt: skip
def test_patterns_that_repeat_a_repetition_do_not(pattern):
    assert explodes(pattern)


def described(**model):
    return {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]", **model}}


def test_ids_are_its_own():
    check(described(), "x")
    check(described(vocab={"a": 60_000}), "x")  # gaps are met in published vocabularies
    for vocabulary, says in (({"a": 1 << 20}, "reach 1048576"), ({"a": 1, "b": 1}, "same id")):
        with pytest.raises(MeristemError, match=says):
            check(described(vocab=vocabulary), "x")
    added = [{"content": "x", "id": 2}, {"content": "y", "id": 2}]
    with pytest.raises(MeristemError, match="same id"):
        check({**described(), "added_tokens": added}, "x")


def test_steps_are_few():
    steps = {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 300}
    with pytest.raises(MeristemError, match="301 steps"):
        check({**described(), "normalizer": steps}, "x")


def test_patterns_are_found_wherever_they_stand():
    inner = {"type": "Split", "pattern": {"Regex": "(a+)+"}, "behavior": "Isolated", "invert": False}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        with pytest.raises(MeristemError, match="may take forever"):
            check({**described(), part: {"type": "Sequence", "pretokenizers": [inner]}}, "x")


def test_a_vocabulary_needs_its_unknown_token():
    with pytest.raises(MeristemError, match="'nope' is not in its vocabulary"):
        check_unknown(described(unk_token="nope"), "x")
    check_unknown(described(), "x")


def test_what_the_library_panics_over_is_an_error_for_people(capfd):
    def cut():
        return {"type": "Split", "pattern": {"Regex": r"a*a*a*a*a*a*a*b"}, "behavior": "Isolated", "invert": False}

    one = Tokenizer(
        json.dumps({**described(), "version": "1.0", "added_tokens": [], "pre_tokenizer": cut()}), "odd.json"
    )
    for work in (one.encode, lambda text: one.ids_many([text]), lambda text: one.encode_many([text])):
        with pytest.raises(MeristemError, match=r"odd\.json: the tokenizer cannot cut this text"):
            work("a" * 300 + "cb")
    assert one.encode("a").ids.tolist() == [1]
    capfd.readouterr()  # the library prints its own trace
