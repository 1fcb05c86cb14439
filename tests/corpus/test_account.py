import pytest
from rich.console import Console

from meristem.corpus import account as module
from meristem.corpus.account import Account


def test_a_lost_document_is_noticed():
    account = Account(read=3, kept=1)
    account.splits["train"] = 1
    account.drop("empty")
    with pytest.raises(AssertionError, match="read 3, kept 1, dropped 1"):
        account.check()
    account.drop("empty")
    with pytest.raises(AssertionError, match=r"went missing"):
        Account(read=1).check()
    account.read = 3
    account.check()


def test_a_document_without_split_is_noticed():
    with pytest.raises(AssertionError, match="without a split"):
        Account(read=1, kept=1).check()


def test_parts_add_up_and_are_taken_once():
    whole, part = Account(), Account(read=2)
    part.drop("empty")
    part.keep("a.txt", 1, 10)
    part.reject("empty file", "b.txt")
    taken = part.take()
    assert part == Account()
    whole.add(taken)
    whole.add(part.take())
    assert (whole.read, whole.kept, whole.characters) == (2, 1, 10)
    assert whole.dropped == {"empty": 1}
    assert whole.sources == {"a.txt": 1}
    assert whole.warnings == ["b.txt: empty file"]


def test_warnings_and_files_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "NAMED_FILES", 3)
    account = Account()
    for number in range(50):
        account.warn(f"w{number}")
        account.keep(f"f{number}", 1, 1)
    assert len(account.warnings) == module.WARNINGS
    assert account.unshown == 50 - module.WARNINGS
    assert account.sources == {"f0": 1, "f1": 1, "f2": 1, "(other files)": 47}


def test_table_shows_every_count():
    account = Account(read=12_345, kept=12_000, characters=99_999)
    account.drop("duplicate", 345)
    account.splits.update(train=11_000, validation=600, test=400)
    account.skipped[".png"] = 7
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(account.table())
    for shown in ("12,345", "dropped: duplicate", "345", "11,000", "600", "400", "99,999", "skipped: .png", "7"):
        assert shown in capture.get()
    assert "345 dropped (duplicate)" in account.summary()
