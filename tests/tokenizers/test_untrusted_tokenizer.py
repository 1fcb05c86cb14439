"""Limits on untrusted tokenizer.json files."""

import base64
import json
import threading
import time

import pytest

from meristem.config.errors import MeristemError
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.untrusted_tokenizer import (
    check_description,
    check_unknown,
    has_nested_repetition,
    max_growth,
)

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
def test_patterns_of_published_tokenizers_have_no_nested_repetition(pattern):
    assert not has_nested_repetition(pattern)


@pytest.mark.parametrize("pattern", [
    "(a+)+$", "(a|aa)+$", "(x+x+)+y", "(?:(?:a*)*)*", "((a)*b?)*c", "(a?){100}", r"([a-z]+)*$", r"(\w|\s)+x",
    "(a*){2,}",
])  # fmt: skip
def test_nested_repetition_is_found(pattern):
    assert has_nested_repetition(pattern)


def described(**model):
    return {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]", **model}}


def test_ids_must_be_unique_and_dense():
    check_description(described(), "x")
    check_description(described(vocab={"a": 60_000}), "x")  # gaps are met in published vocabularies
    for vocabulary, message in (({"a": 1 << 20}, "highest id is 1048576"), ({"a": 1, "b": 1}, "same id")):
        with pytest.raises(MeristemError, match=message):
            check_description(described(vocab=vocabulary), "x")
    added = [{"content": "x", "id": 2}, {"content": "y", "id": 2}]
    with pytest.raises(MeristemError, match="same id"):
        check_description({**described(), "added_tokens": added}, "x")


def test_the_number_of_steps_is_limited():
    steps = {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 300}
    with pytest.raises(MeristemError, match="301 pipeline steps"):
        check_description({**described(), "normalizer": steps}, "x")


def test_patterns_are_found_in_all_parts():
    inner = {"type": "Split", "pattern": {"Regex": "(a+)+"}, "behavior": "Isolated", "invert": False}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        with pytest.raises(MeristemError, match="may take exponential time"):
            check_description({**described(), part: {"type": "Sequence", "pretokenizers": [inner]}}, "x")


def test_a_vocabulary_needs_its_unknown_token():
    with pytest.raises(MeristemError, match="'nope' is not in its vocabulary"):
        check_unknown(described(unk_token="nope"), "x")
    check_unknown(described(), "x")


def test_a_panic_of_the_library_is_a_readable_error(capfd):
    def cut():
        return {"type": "Split", "pattern": {"Regex": r"a*a*a*a*a*a*a*b"}, "behavior": "Isolated", "invert": False}

    tokenizer = Tokenizer(
        json.dumps({**described(), "version": "1.0", "added_tokens": [], "pre_tokenizer": cut()}), "odd.json"
    )
    for work in (
        tokenizer.encode,
        lambda text: tokenizer.encode_ids([text]),
        lambda text: tokenizer.encode_batch([text]),
    ):
        with pytest.raises(MeristemError, match=r"odd\.json: the tokenizer cannot encode this text"):
            work("a" * 300 + "cb")
    assert tokenizer.encode("a").ids.tolist() == [1]
    capfd.readouterr()  # the library prints its own trace


def test_the_word_length_is_limited():
    check_description(described(max_input_chars_per_word=200), "x")
    with pytest.raises(MeristemError, match="max_input_chars_per_word is 100,000"):
        check_description(described(max_input_chars_per_word=100_000), "x")


def replacing(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


CHARSMAP = base64.b64encode(b"\x01\0\0\0t" + b"y" * 300 + b"\0").decode()


@pytest.mark.parametrize(("normalizer", "times"), [
    (None, 1),
    ({"type": "NFKC"}, 1),
    (replacing({"String": " "}, "▁"), 1),
    (replacing({"Regex": " {2,}"}, " "), 2),
    ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replacing({"String": " "}, "▁")]}, 2),
    (replacing({"String": "a"}, "b" * 1000), 1000),
    ({"type": "Sequence", "normalizers": [replacing({"String": "a"}, "aaaaaaaaaa")] * 3}, 1000),
    ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x" * 20}] * 3}, 9261),
    ({"type": "Precompiled", "precompiled_charsmap": CHARSMAP}, 300),
])  # fmt: skip
def test_the_growth_of_a_text(normalizer, times):
    assert max_growth(normalizer) == pytest.approx(times)
    if times > 64:
        with pytest.raises(MeristemError, match=r"may make a text [0-9,]+ times as long"):
            check_description({**described(), "normalizer": normalizer}, "x")
    else:
        check_description({**described(), "normalizer": normalizer}, "x")


@pytest.mark.parametrize("pattern", [r"(?<x>a\g<x>?)", r"\g<0>", r"(?~ab)"])
def test_recursive_patterns_are_rejected(pattern):
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    with pytest.raises(MeristemError, match="is recursive"):
        check_description({**described(), "pre_tokenizer": cut}, "x")


@pytest.mark.parametrize("pattern", ["a+a+a+a+a+[0-9]", "z+z+z+z+z+[0-9]"])
def test_slow_patterns_are_found_by_timing(pattern):
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    assert not has_nested_repetition(pattern)
    with pytest.raises(MeristemError, match="and far longer on longer texts"):
        Tokenizer(json.dumps({**described(), "pre_tokenizer": cut}))


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_published_patterns_are_fast(pattern):
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    assert Tokenizer(json.dumps({**described(), "pre_tokenizer": cut})).vocab_size == 2


def test_other_threads_run_while_a_text_is_encoded():
    model = {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##a": 2}, "unk_token": "[UNK]",
             "continuing_subword_prefix": "##", "max_input_chars_per_word": 256}  # fmt: skip
    cut = {"type": "Whitespace"}
    tokenizer = Tokenizer(json.dumps({"model": model, "pre_tokenizer": cut}))
    text, ticks, event = " ".join(["a" * 256] * 40), [], threading.Event()

    def tick():
        while not event.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    thread = threading.Thread(target=tick)
    thread.start()
    most = 0
    for _ in range(200):  # on a busy machine the other thread may not get its turn in every one of them
        start = time.perf_counter()
        tokenizer.encode(text)
        end = time.perf_counter()
        most = max(most, sum(start < tick < end for tick in ticks))
        if most >= 3:
            break
        ticks.clear()
    event.set()
    thread.join()
    assert most >= 3


def test_a_panic_while_the_template_is_read_is_a_readable_error(tmp_path, capfd):
    path = tmp_path / "tokenizer.json"
    cut = {"type": "FixedLength", "length": 0}
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    model = described(type="WordPiece", continuing_subword_prefix="##", max_input_chars_per_word=100)
    path.write_text(json.dumps({**model, "pre_tokenizer": cut, "decoder": decoder}))
    for name in ("single_template", "template_segments", "pair_template"):
        with pytest.raises(MeristemError, match="cannot encode this text"):
            getattr(Tokenizer.load(path), name)
