"""Text with unknown tokens: refused or warned about, and its bits per byte."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rich.console import Console
from run_factory import RunFactory

from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.evaluation.evaluate import evaluate

CHINESE = [f"第{number}天，水手卖了{number % 7}条船，然后回家去了。" for number in range(60)]
ENGLISH = [f"On day {number} the sailor sold boats and went home." for number in range(60)]


def text(folder: Path, *lines: str) -> str:
    (folder / "other.txt").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "other.txt")


def test_continued_pretraining_on_text_of_another_script_is_refused_before_a_run_starts(
    run_factory: RunFactory, tmp_path: Path
) -> None:
    run_factory.train(family="bert", run="english")
    start = f"from={run_factory.root / 'english'}"
    other = ["corpus.source=" + text(tmp_path, *CHINESE), "corpus.document=line", "objective=mlm"]
    with pytest.raises(MeristemError, match=r"of the tokens of .*other\.txt are unknown.*from\.tokenizer=own"):
        run_factory.train(start, *other, family="bert", run="refused")
    assert not (run_factory.root / "refused").exists()
    run_factory.train(start, *other, "dataset.max_unknown=1", family="bert", run="forced")
    assert "WARNING: " in run_factory.output.getvalue()
    run_factory.train(start, *other, "from.tokenizer=own", family="bert", run="own")
    assert "% unknown)" not in run_factory.output.getvalue().split("Training tiny")[-1]


def test_unknown_tokens_are_reported_and_warned_about_where_they_are_many(
    run_factory: RunFactory, tmp_path: Path
) -> None:
    run_factory.train(family="bert", run="english")
    mixed = text(tmp_path, *ENGLISH, *CHINESE[:8])
    run_factory.train(
        f"from={run_factory.root / 'english'}",
        f"corpus.source={mixed}",
        "corpus.document=line",
        "objective=mlm",
        family="bert",
        run="mixed",
    )
    assert "% unknown)" in run_factory.output.getvalue()
    assert "WARNING: " in run_factory.output.getvalue()


def test_bits_per_byte_are_not_flattered_by_unknown_words(run_factory: RunFactory, tmp_path: Path) -> None:
    run_factory.train("tokenizer.kind=wordpiece", family="gpt2")
    run = load_run(run_factory.root / "run")
    console = Console(quiet=True)
    evaluation = evaluate(run, data=text(tmp_path, *CHINESE), console=console)
    assert evaluation["unknown"]["unknown"] > 0.5
    assert evaluation["notices"][0].startswith("WARNING: ")
    assert evaluation["metrics"]["bits_per_byte"] > 8  # each character is spelled; it used to be about 1
    plain = evaluate(run, data=text(tmp_path, "the sailor"), console=console)
    tokens = len(run.tokenizer.encode("the sailor").ids)
    assert plain["unknown"] == {"unknown": 0.0} and not plain["notices"]
    bits = plain["metrics"]["loss"] / math.log(2) * (tokens + 1)
    assert plain["metrics"]["bits_per_byte"] == pytest.approx(bits / len("the sailor"))
