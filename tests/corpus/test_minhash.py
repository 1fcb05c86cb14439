"""MinHash signatures estimate similarity; the LSH index finds the first near duplicate, whatever the memory limit."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import RecipeError
from meristem.config.validation import build_settings
from meristem.corpus.dedup.lsh_index import MAX_CANDIDATES, LSHIndex, _top_candidates
from meristem.corpus.dedup.minhash import NUM_HASHES, MinHashSettings, band_keys, minhash_signatures
from meristem.corpus.dedup.sorted_runs import SortedRuns
from meristem.corpus.settings import CorpusSettings

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
IDEOGRAPHS = [chr(0x4E00 + number) for number in range(3_000)]


def story(rng: random.Random, chinese: bool, length: int = 200) -> list[str]:
    if chinese:
        return rng.choices(IDEOGRAPHS, k=length)
    return ["".join(rng.choices(SYLLABLES, k=3)) for _ in range(length)]


def text_of(words: list[str], chinese: bool) -> str:
    return ("" if chinese else " ").join(words)


def jaccard(text: str, other: str, words: int = 5) -> float:
    def shingles(text: str) -> set[tuple[str, ...]]:
        words_and_characters = re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+", text.lower())
        return {
            tuple(words_and_characters[index : index + words])
            for index in range(max(len(words_and_characters) - words + 1, 1))
        }

    a, b = shingles(text), shingles(other)
    return len(a & b) / len(a | b)


def planted(chinese: bool, count: int = 400) -> list[tuple[str, str, float]]:
    """Pairs of texts and how alike they are, from hardly to almost the same."""
    rng = random.Random(chinese)
    pairs = []
    for _ in range(count):
        words = story(rng, chinese)
        other = list(words)
        for position in rng.sample(range(len(words)), rng.randrange(1, 26)):
            other[position] = rng.choice(story(rng, chinese, 1))
        original, changed = text_of(words, chinese), text_of(other, chinese)
        pairs.append((original, changed, jaccard(original, changed)))
    return pairs


@pytest.mark.parametrize("chinese", [False, True])
def test_agreement_is_the_jaccard_index(chinese):
    pairs = planted(chinese)
    agreed = (minhash_signatures([a for a, _, _ in pairs]) == minhash_signatures([b for _, b, _ in pairs])).mean(axis=1)
    true = np.array([j for _, _, j in pairs])
    error = agreed - true
    expected = np.sqrt((true * (1 - true) / NUM_HASHES).mean())
    assert abs(error.mean()) < 4 * expected / np.sqrt(len(pairs))
    assert np.sqrt((error**2).mean()) < 1.2 * expected


@pytest.mark.parametrize("chinese", [False, True])
def test_near_ones_are_found_and_others_are_not(chinese, tmp_path):
    pairs = planted(chinese, 600)
    index = LSHIndex(MinHashSettings(), tmp_path)
    assert (index.query_and_add(minhash_signatures([a for a, _, _ in pairs])) == -1).all()
    matches = index.query_and_add(minhash_signatures([b for _, b, _ in pairs]))
    true = np.array([j for _, _, j in pairs])
    assert (true >= 0.8).sum() > 80 and (true < 0.5).sum() > 80
    right = matches == np.arange(len(pairs))
    assert right[true >= 0.8].mean() >= 0.95
    assert not (matches[true < 0.5] >= 0).any()
    assert ((matches == -1) | right).all()


def test_case_spaces_and_signs_do_not_matter():
    rows = minhash_signatures(
        ["Down the rabbit-hole, said Alice; fell.", "down THE rabbit hole\nsaid alice fell", "no"]
    )
    assert (rows[0] == rows[1]).all()
    assert (rows[0] != rows[2]).mean() > 0.9


def test_few_words_none_and_very_many():
    rows = minhash_signatures(["two words", "Two, words!", "two worlds", "***", "---", "", "two", "x " * 50_000])
    assert (rows[0] == rows[1]).all()
    for row, other in ((0, 2), (0, 6), (3, 4), (3, 5)):
        assert (rows[row] == rows[other]).mean() < 0.1
    assert minhash_signatures([]).shape == (0, NUM_HASHES)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=8), words=st.integers(1, 7))
def test_a_text_has_the_same_signature_in_any_company(texts, words):
    signatures = minhash_signatures(texts, words)
    for text, row in zip(texts, signatures, strict=True):
        assert (minhash_signatures([text], words)[0] == row).all()


def test_signatures_are_the_same_on_every_machine_and_run():
    """Golden: kept indexes are read again by later versions, and Python's hash seed must leave no trace."""
    text = "Hello wörld 你好 of the day"
    assert minhash_signatures([text])[0, :4].tolist() == [5192, 7534, 5663, 54216]
    code = (
        "from meristem.corpus.dedup.minhash import minhash_signatures; "
        f"print(minhash_signatures([{text!r}])[0, :4].tolist())"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": "7"}
    )
    assert completed.stdout.strip() == "[5192, 7534, 5663, 54216]", completed.stderr


def naive(rows: np.ndarray, settings: MinHashSettings) -> list[int]:
    """In order, one at a time: the first text before it that shares a band and agrees."""
    keys, new, matches = band_keys(rows, settings.rows_per_band), [], []
    for index in range(len(rows)):
        near_duplicates = [
            n
            for n, other in enumerate(new)
            if (keys[index] == keys[other]).any() and (rows[index] == rows[other]).sum() >= settings.min_matches
        ]
        matches.append(near_duplicates[0] if near_duplicates else -1)
        if not near_duplicates:
            new.append(index)
    return matches


@pytest.fixture(scope="module")
def signatures() -> np.ndarray:
    """Texts of which many are near to some before them, and short ones that share much."""
    rng = random.Random(5)
    texts: list[str] = []
    for _ in range(500):
        words = rng.choice(texts).split() if texts and rng.random() < 0.5 else story(rng, False, 60)
        for position in rng.sample(range(len(words)), min(rng.randrange(0, 4), len(words))):
            words[position] = rng.choice(SYLLABLES)
        texts.append(" ".join(words))
    texts += [" ".join(rng.choices(SYLLABLES[:3], k=6)) for _ in range(60)]
    return minhash_signatures(texts)


@pytest.fixture(scope="module")
def expected(signatures: np.ndarray) -> list[int]:
    matches = naive(signatures, MinHashSettings())
    assert sum(number >= 0 for number in matches) > 100
    return matches


@pytest.mark.parametrize("step", [3, 50, 1_000])
def test_batches_and_memory_do_not_change_what_is_found(step, signatures, expected, tmp_path, monkeypatch):
    rows, settings = signatures, MinHashSettings(memory_mb=1)
    monkeypatch.setattr("meristem.corpus.dedup.sorted_runs.MERGE_ENTRIES", 100)
    for memory in (1 << 20, 20_000, 0):
        lsh_index = LSHIndex(settings, tmp_path / str(memory))
        lsh_index._runs._memory = memory
        matches = np.concatenate(
            [lsh_index.query_and_add(rows[index : index + step]) for index in range(0, len(rows), step)]
        )
        assert matches.tolist() == expected
        assert (lsh_index._runs.on_disk > 0) == (memory < 1 << 20)
        assert len(list((tmp_path / str(memory) / "bands").iterdir())) == 2 * lsh_index._runs.on_disk


def test_an_index_is_resumed_unchanged(signatures, tmp_path):
    rows = signatures
    expected_matches = LSHIndex(MinHashSettings(), tmp_path / "whole").query_and_add(rows)
    first = LSHIndex(MinHashSettings(), tmp_path / "cut")
    before = first.query_and_add(rows[:300])
    count = len(first)
    first.query_and_add(rows[300:400])  # and then it was killed: none of this counts
    index = LSHIndex(MinHashSettings(), tmp_path / "cut", count=count)
    assert len(index) == count == (before < 0).sum()
    assert np.concatenate([before, index.query_and_add(rows[300:])]).tolist() == expected_matches.tolist()


def test_a_crowd_of_candidates_is_cut_to_the_likeliest():
    texts = np.repeat(np.array([3, 9]), [3 * MAX_CANDIDATES, 5])
    ids = np.concatenate([np.arange(2 * MAX_CANDIDATES), np.arange(MAX_CANDIDATES, 2 * MAX_CANDIDATES), np.arange(5)])
    few_texts, top_ids = _top_candidates(texts, ids.astype(np.uint32))
    assert top_ids[few_texts == 3].tolist() == list(range(MAX_CANDIDATES, 2 * MAX_CANDIDATES))
    assert top_ids[few_texts == 9].tolist() == [0, 1, 2, 3, 4]


def test_runs_give_every_entry_of_a_key(tmp_path):
    runs = SortedRuns(tmp_path, 1 << 20)
    query_indices, ids = runs.find(np.array([1], np.uint64))
    assert len(query_indices) == len(ids) == 0
    for number in range(20):
        runs.add(np.array([5, 7, number], np.uint64), np.full(3, number, np.uint32))
    query_indices, ids = runs.find(np.array([19, 7, 100, 5], np.uint64))
    ids_by_query = {index: sorted(ids[query_indices == index].tolist()) for index in range(4)}
    assert ids_by_query == {0: [19], 1: sorted([*range(20), 7]), 2: [], 3: sorted([*range(20), 5])}


def test_bands_follow_from_the_threshold():
    for threshold in (0.3, 0.5, 0.7, 0.8, 0.9, 0.99):
        settings = MinHashSettings(jaccard=threshold)
        assert NUM_HASHES % settings.rows_per_band == 0
        assert 1 - (1 - threshold**settings.rows_per_band) ** (NUM_HASHES // settings.rows_per_band) >= 0.98
        assert threshold - 0.12 < settings.min_matches / NUM_HASHES < threshold
    assert (MinHashSettings().rows_per_band, MinHashSettings().min_matches) == (7, 91)


def test_near_is_a_switch_or_settings():
    assert build_settings(CorpusSettings, {"near_dedup": True}, "corpus").near_dedup == MinHashSettings()
    assert build_settings(CorpusSettings, {"near_dedup": False}, "corpus").near_dedup is None
    assert build_settings(CorpusSettings, {"near_dedup": {"jaccard": 0.7}}, "corpus").near_dedup == MinHashSettings(
        jaccard=0.7
    )
    with pytest.raises(RecipeError, match=r"corpus\.near_dedup\.jaccard"):
        build_settings(CorpusSettings, {"near_dedup": {"jaccard": 1.5}}, "corpus")
    with pytest.raises(RecipeError, match="different images may have similar captions"):
        build_settings(CorpusSettings, {"near_dedup": True, "source": "a.jsonl", "image": "image"}, "corpus")
    assert all(field.description for field in MinHashSettings.model_fields.values())


def test_what_is_off_leaves_no_trace_in_a_key():
    assert CorpusSettings().cache_key_fields().keys() == CorpusSettings(near_dedup=False).cache_key_fields().keys()
    assert "near" not in CorpusSettings().cache_key_fields()
    settings, other = (CorpusSettings(near_dedup={"memory_mb": size}) for size in (1, 2))
    assert settings.cache_key_fields() == other.cache_key_fields()
    assert settings.needs_processing and not CorpusSettings().needs_processing
