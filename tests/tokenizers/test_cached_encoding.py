"""Cached encoding: cut patterns, batches, trimming of offsets."""

import json

import numpy as np
import pytest

from meristem.tokenizers.cached_encoding import (
    BERT_CHINESE_PATTERN,
    BERT_WORD_PATTERN,
    CHARACTER_PATTERN,
    WORD_PATTERN,
    batch_texts,
    cut_pattern,
    trim_offsets,
)


@pytest.mark.parametrize("pattern", [BERT_CHINESE_PATTERN, BERT_WORD_PATTERN, CHARACTER_PATTERN, WORD_PATTERN])
def test_pieces_concatenate_to_the_text(pattern, unusual_texts, corpus):
    for text in [*unusual_texts, *corpus]:
        assert "".join(pattern.findall(text)) == text


def test_every_kind_has_a_cut_pattern(trained):
    expected_patterns = {
        "wordpiece": BERT_CHINESE_PATTERN,
        "words": BERT_CHINESE_PATTERN,
        "bpe": WORD_PATTERN,
        "unigram": WORD_PATTERN,
        "characters": CHARACTER_PATTERN,
    }
    assert {
        kind: cut_pattern(json.loads(tokenizer_of_kind.json_text)) for kind, tokenizer_of_kind in trained.items()
    } == expected_patterns


@pytest.mark.parametrize(
    ("kind", "part", "change", "expected"),
    [
        ("wordpiece", "normalizer", {"handle_chinese_chars": False}, BERT_WORD_PATTERN),
        ("wordpiece", "pre_tokenizer", {"type": "Whitespace"}, None),
        ("bpe", "pre_tokenizer", {"add_prefix_space": True}, None),
        ("bpe", "pre_tokenizer", {"use_regex": False}, None),
        ("bpe", "normalizer", {"type": "NFC"}, None),
        ("unigram", "normalizer", {"normalizers": [{"type": "NFKC"}]}, None),
        ("unigram", "normalizer", {"normalizers": []}, None),
        ("unigram", "pre_tokenizer", {"pretokenizers": []}, None),
        ("characters", "pre_tokenizer", {"behavior": "Removed"}, None),
    ],
)
def test_unknown_pipelines_have_no_cut_pattern(trained, kind, part, change, expected):
    description = json.loads(trained[kind].json_text)
    description[part] = (description[part] or {}) | change
    assert cut_pattern(description) is expected


def test_batches_keep_order_and_size_limit(monkeypatch):
    monkeypatch.setattr("meristem.tokenizers.cached_encoding.BATCH_CHARACTERS", 5)
    texts = ["aa", "bb", "cccccccc", "", "d"]
    assert list(batch_texts(texts)) == [["aa", "bb", "cccccccc"], ["", "d"]]
    assert list(batch_texts([])) == []


def test_trimming_drops_leading_space_but_keeps_tokens_of_only_space():
    trimmed = trim_offsets(" a \u3000\tb ", np.array([(0, 2), (2, 4), (4, 6), (6, 7)]))
    assert trimmed.tolist() == [[1, 2], [2, 4], [5, 6], [6, 7]]
    assert trim_offsets("", []).shape == (0, 2)
