import json

import numpy as np
import pytest

from meristem.tokenizers.pieces import BERT_CHINESE, BERT_WORDS, CHARACTERS, WORDS, cuts, groups, visible


@pytest.mark.parametrize("pattern", [BERT_CHINESE, BERT_WORDS, CHARACTERS, WORDS])
def test_pieces_put_together_are_the_text(pattern, odd, corpus):
    for text in [*odd, *corpus]:
        assert "".join(pattern.findall(text)) == text


def test_cuts_are_known_for_every_kind(trained):
    want = {"wordpiece": BERT_CHINESE, "words": BERT_CHINESE, "bpe": WORDS, "unigram": WORDS, "characters": CHARACTERS}
    assert {kind: cuts(json.loads(one.text)) for kind, one in trained.items()} == want


@pytest.mark.parametrize(("kind", "part", "change", "want"), [
    ("wordpiece", "normalizer", {"handle_chinese_chars": False}, BERT_WORDS),
    ("wordpiece", "pre_tokenizer", {"type": "Whitespace"}, None),
    ("bpe", "pre_tokenizer", {"add_prefix_space": True}, None),
    ("bpe", "pre_tokenizer", {"use_regex": False}, None),
    ("bpe", "normalizer", {"type": "NFC"}, None),
    ("unigram", "normalizer", {"normalizers": [{"type": "NFKC"}]}, None),
    ("unigram", "normalizer", {"normalizers": []}, None),
    ("unigram", "pre_tokenizer", {"pretokenizers": []}, None),
    ("characters", "pre_tokenizer", {"behavior": "Removed"}, None),
])
def test_what_is_not_proven_is_not_cut(trained, kind, part, change, want):
    description = json.loads(trained[kind].text)
    description[part] = (description[part] or {}) | change
    assert cuts(description) is want


def test_groups_keep_order_and_bound(monkeypatch):
    monkeypatch.setattr("meristem.tokenizers.pieces.GROUP", 5)
    texts = ["aa", "bb", "cccccccc", "", "d"]
    assert list(groups(texts)) == [["aa", "bb", "cccccccc"], ["", "d"]]
    assert list(groups([])) == []


def test_visible_leaves_out_leading_space_but_keeps_tokens_of_nothing_else():
    got = visible(" a \u3000\tb ", np.array([(0, 2), (2, 4), (4, 6), (6, 7)]))
    assert got.tolist() == [[1, 2], [2, 4], [5, 6], [6, 7]]
    assert visible("", []).shape == (0, 2)
