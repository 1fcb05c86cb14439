"""Counts of a corpus pass."""

import json
import random

import pytest
from rich.console import Console

from meristem.corpus import accounting as module
from meristem.corpus.accounting import CorpusAccount
from meristem.data.read_counts import MAX_WARNINGS


def test_a_lost_document_is_noticed():
    account = CorpusAccount(read=3, kept=1)
    account.splits["train"] = 1
    account.drop("empty")
    with pytest.raises(AssertionError, match="read 3, kept 1, dropped 1"):
        account.check_totals()
    account.drop("empty")
    with pytest.raises(AssertionError, match=r"are missing"):
        CorpusAccount(read=1).check_totals()
    account.read = 3
    account.check_totals()


def test_a_document_without_split_is_noticed():
    with pytest.raises(AssertionError, match="without a split"):
        CorpusAccount(read=1, kept=1).check_totals()


def test_parts_add_up_and_are_taken_once():
    account, part = CorpusAccount(), CorpusAccount(read=2)
    part.drop("empty")
    part.keep("a.txt", [10])
    part.reject_file("empty file", "b.txt")
    counts = part.pop_counts()
    assert part == CorpusAccount()
    account.merge(counts)
    account.merge(part.pop_counts())
    assert (account.read, account.kept, account.characters) == (2, 1, 10)
    assert account.dropped == {"empty": 1}
    assert account.sources == {"a.txt": 1}
    assert account.warnings == ["b.txt: empty file"]


def test_warnings_and_files_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMED_FILES", 3)
    account = CorpusAccount()
    for number in range(50):
        account.warn(f"w{number}")
        account.keep(f"f{number}", [1])
    assert len(account.warnings) == MAX_WARNINGS
    assert account.unshown == 50 - MAX_WARNINGS
    assert account.sources == {"f0": 1, "f1": 1, "f2": 1, "(other files)": 47}


def test_lengths_are_counted_by_powers_of_two():
    account = CorpusAccount()
    account.keep("a.txt", [1, 2, 3, 4, 511, 512, 1023, 1024])
    assert account.lengths == {0: 1, 1: 2, 2: 1, 8: 1, 9: 2, 10: 1}
    assert (account.kept, account.characters) == (8, 3080)


def test_examples_are_the_same_whatever_the_order_and_the_parts():
    dropped = [(f"a.txt:{number}", f"text {number % 40}") for number in range(100)]
    account = CorpusAccount()
    account.add_examples("too short", dropped)
    for seed in range(10):
        shuffled = random.Random(seed).sample(dropped, len(dropped))
        merged = CorpusAccount()
        for start in range(0, 100, 7):
            part = CorpusAccount()
            for example in shuffled[start : start + 7]:
                part.add_examples("too short", [example])
            merged.merge(part.pop_counts())
        assert merged.examples == account.examples
    (examples,) = account.examples.values()
    assert len(examples) == 5 == len({text for _, text in examples})


def test_an_excerpt_is_one_line_cut_at_a_word():
    account = CorpusAccount()
    account.add_examples("empty", [("a:1", " two\n\n words\x00 "), ("a:2", "word " * 500), ("a:3", "字" * 500)])
    for location, text in account.examples["empty"]:
        assert len(text) <= 200
        assert "\n" not in text
        assert location != "a:2" or text.endswith("word …")
    assert ("a:1", "two words\x00") in account.examples["empty"]
    account.add_examples("half", [("a:4", "half \ud800 of a pair")])
    assert account.examples["half"] == [("a:4", "half ? of a pair")]


def test_examples_are_placed_from_the_start_of_their_file():
    account = CorpusAccount()
    account.add_examples("too short", [("folder/a:b.txt:3", "x")])
    account.shift_line_numbers(40)
    assert account.examples == {"too short": [("folder/a:b.txt:43", "x")]}


def test_an_account_goes_through_json():
    account = CorpusAccount(read=3, kept=1)
    account.keep("a.txt", [10, 2000])
    account.add_examples("too short", [("a.txt:1", "x")])
    account.drop("too short")
    account.warn("strange")
    account.languages["zh"] = 2
    account.passages["a line"] = 7
    assert CorpusAccount.from_dict(json.loads(json.dumps(account.to_dict()))) == account
    restored = CorpusAccount.from_dict(account.to_dict())
    restored.drop("too short")
    restored.warn("stranger")
    assert (account.dropped["too short"], account.warnings) == (1, ["strange"])


def test_table_shows_every_count():
    account = CorpusAccount(read=12_345, kept=12_000, characters=99_999)
    account.drop("duplicate", 345)
    account.splits.update(train=11_000, validation=600, test=400)
    account.skipped[".png"] = 7
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(account.table())
    for fragment in ("12,345", "dropped: duplicate", "345", "11,000", "600", "400", "99,999", "skipped: .png", "7"):
        assert fragment in capture.get()
    assert "345 dropped (duplicate)" in account.summary()
