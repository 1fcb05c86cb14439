"""docs/corpus.md: its settings are those there are, its commands and scripts run as they stand there, only smaller."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

import documented_commands
from typer.testing import CliRunner

from meristem.cli.app import app
from meristem.corpus.clean.quality_filters import QualitySettings
from meristem.corpus.dedup.minhash import MinHashSettings
from meristem.corpus.privacy.pii import PLACEHOLDERS
from meristem.corpus.settings import CorpusSettings
from meristem.training import budget

PAGE = "docs/corpus.md"
TEXT = (documented_commands.ROOT / PAGE).read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TEXT.splitlines() if line.startswith("| `")]
WORDS = [
    *["the", "of", "and", "that", "with", "is", "for"] * 6,
    *(
        onset + rhyme
        for onset in ("b", "fl", "gr", "l", "m", "st", "tr")
        for rhyme in ("ark", "eed", "old", "ush", "ay")
    ),
]


def crawl(folder: Path, documents: int = 120) -> None:
    """A small crawl with something for every step."""
    folder.mkdir()
    rows = []
    for n in range(documents):
        rng = random.Random(n % 100)  # the last twenty are exact duplicates
        text = " ".join(f"{' '.join(rng.choices(WORDS, k=12)).capitalize()}." for _ in range(8))
        rows.append(f"Share this article\n{text} Write to ada@example.org." if n % 5 == 0 else text)
    rows += [
        "This is the house of the old man, and that is all there is to say of it.",
        "Der alte Gärtner ging am Morgen durch den Garten und sah, dass die Rosen nicht mehr blühten. " * 4,
    ]
    for start in range(0, len(rows), 20):
        lines = [json.dumps({"text": row}) for row in rows[start : start + 20]]
        (folder / f"{start:03d}.jsonl").write_text("\n".join(lines), encoding="utf-8")


def test_every_setting_is_on_the_page_and_every_example_holds() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
    assert set(CorpusSettings.model_fields) <= named
    examples = re.findall(r"corpus\.[\w.]+=[^\s`,]+(?:,[\w-]+\])?", TEXT)
    assert len(examples) > 20
    for example in examples:
        result = CliRunner().invoke(app, ["corpus", "no-such-file.txt", example])
        assert result.exit_code == 1, f"{example}: {result.output}"  # the setting is fine, the file is what is missing


def test_the_rules_of_quality_have_the_values_on_the_page() -> None:
    documented_values = {
        name: row[1] for row in ROWS for name in re.findall(r"`(\w+)`", row[0]) if name in QualitySettings.model_fields
    }
    assert set(documented_values) == set(QualitySettings.model_fields)
    for name, documented_value in documented_values.items():
        default = QualitySettings.model_fields[name].default
        if isinstance(default, dict):
            assert documented_value == f"{min(default)}–{max(default)} words"
        else:
            assert documented_value == str(default).replace("True", "true")
        (paper,) = {row[2] for row in ROWS if f"`{name}`" in row[0]}
        assert paper in str(QualitySettings.model_fields[name].description)


def test_kinds_and_near_settings_are_told() -> None:
    for kind in PLACEHOLDERS:
        assert f"`{kind}`" in TEXT
    settings = MinHashSettings()
    for phrase in (
        f"`jaccard` ({settings.jaccard})",
        f"`words` ({settings.words})",
        f"`memory_mb` ({settings.memory_mb})",
        "`drop: false`",
    ):
        assert phrase in TEXT


@pytest.mark.timeout(600)
def test_commands_and_scripts_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # over 10 s: two pools of processes that import the package, a training, and five passes over a corpus
    pytest.importorskip("datatrove")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    crawl(tmp_path / "crawl")
    first, benchmark, second = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    script, slurm = documented_commands.python(PAGE)
    for command in first.splitlines():
        run(command)
    assert sorted(path.name for path in Path("clean").iterdir()) == [
        "report.html",
        "test.jsonl",
        "train.jsonl",
        "validation.jsonl",
    ]
    assert "too few words" in Path("crawl.html").read_text(encoding="utf-8")
    for split, articles in (("train", 40), ("valid", 4), ("test", 4)):
        text = "".join(f" \n = Article {n} of {split} = \n \n {' '.join(WORDS)} . \n" for n in range(articles))
        Path(f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    run(benchmark)
    Path("clean.py").write_text(script, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(documented_commands.ROOT)}
    completed = subprocess.run([sys.executable, "clean.py"], env=env, capture_output=True, text=True, timeout=240)
    assert completed.returncode == 0, completed.stderr
    stats = json.loads(Path("cluster/logs/clean/stats.json").read_text(encoding="utf-8"))
    counted = {name for step in stats for name in step["stats"]}
    assert {"dropped_too few words", "dropped_another language: de", "removed_e-mail"} <= counted
    dropped = [json.loads(line) for path in Path("cluster/dropped").iterdir() for line in path.open(encoding="utf-8")]
    assert {row["reason"] for row in dropped} == {"too few words", "another language: de"}
    documents = [json.loads(line) for path in Path("cluster/unique").iterdir() for line in path.open(encoding="utf-8")]
    assert len(documents) == len({row["text"] for row in documents}) == 100
    for command in second.splitlines():
        run(command)
    assert Path("runs/crawl/finished.json").is_file()
    submitted(slurm, monkeypatch)


def run(command: str) -> None:
    """A command of the page, in this process."""
    words = documented_commands.smaller(shlex.split(command, comments=True))
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception}"
    assert result.output.strip()


def submitted(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Slurm script up to the moment that it would submit."""
    from datatrove.executor.slurm import SlurmPipelineExecutor

    executors: list[Any] = []
    monkeypatch.setattr(SlurmPipelineExecutor, "run", lambda self: executors.append(self))
    exec(compile(script, "slurm.py", "exec"), {"__name__": "__main__"})  # the page's own
    (executor,) = executors
    assert executor.world_size == 512
