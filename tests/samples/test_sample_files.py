"""`python -m meristem.samples`: built-in samples written as files that the rest of the package reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings
from meristem.samples.__main__ import main


def test_every_format_is_read_again(tmp_path: Path) -> None:
    columns = DataSettings(text="message", label="team")
    loaded = []
    for suffix in ("csv", "tsv", "jsonl"):
        path = tmp_path / f"tickets.{suffix}"
        assert main(["microworld-tickets?size=20&seed=1", str(path)]) == 0
        loaded.append([(sample.inputs, sample.gold) for sample in load_samples(str(path), columns, "text")])
    assert loaded[0] == loaded[1] == loaded[2] and len(loaded[0]) == 20
    assert main(["microworld-entities?size=7&language=zh", str(tmp_path / "names.conll")]) == 0
    assert len(load_samples(str(tmp_path / "names.conll"), DataSettings(), "words")) == 7


def test_texts_and_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["microworld-en?size=5", str(tmp_path / "new" / "stories.txt")]) == 0
    assert len((tmp_path / "new" / "stories.txt").read_text(encoding="utf-8").split("\n\n")) == 5
    assert main(["microworld-tickets?size=3", str(tmp_path / "inbox.csv"), "--column", "message"]) == 0
    assert (tmp_path / "inbox.csv").read_text(encoding="utf-8").startswith("message\n")
    assert "inbox.csv: 3 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["microworld-tickets?size=3", "a.xlsx"], "must end in .txt, .jsonl"),
        (["microworld-tickets?size=3", "a.csv", "--column", "text"], "has id, message, team"),
        (["microworld-tickets?size=3", "a.conll"], "words and tags"),
        (["microwrld-en", "a.txt"], "microworld-en"),
    ],
)
def test_wrong_use_is_a_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_without_a_name_all_samples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert "microworld-tickets" in listed and "pydocs" in listed
