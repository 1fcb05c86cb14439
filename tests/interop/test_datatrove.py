"""The corpus pipeline under datatrove's local executor gives the same documents as here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove")

import dill
from datatrove.data import Document as Carried
from datatrove.executor.local import LocalPipelineExecutor

from meristem.config.errors import MeristemError
from meristem.corpus import read_ranges
from meristem.corpus.clean.quality_filters import QualitySettings
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.data.formats import text
from meristem.interop import datatrove as adapter
from meristem.interop.datatrove import CleaningFilter, DatatroveReader, DatatroveWriter, ExactDedupFilter


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CorpusSettings:
    """Several files, one of them large enough for ranges, with line ends of all kinds and things to drop."""
    monkeypatch.setattr(read_ranges, "RANGE_BYTES", 2000)
    monkeypatch.setattr(text, "WHOLE_FILE_BYTES", 500)
    folder = tmp_path / "raw"
    folder.mkdir()
    ends = ("\n", "\r\n", "\r", "\n\n\n")
    large = "".join(f"Line {n} of a long file, caf\u00e9 number {n * n}.{ends[n % 4]}" for n in range(300))
    (folder / "large.txt").write_text(large, encoding="utf-8", newline="")
    (folder / "small.txt").write_text("A file\x00 that is one document.\nWith two lines.\n", encoding="utf-8")
    (folder / "again.txt").write_text("A file that is one document.\nWith two lines.", encoding="utf-8")
    rows = [json.dumps({"text": text}) for text in ("the first row of all", "short", "  ", "the last row of all")]
    (folder / "rows.jsonl").write_text("\n".join([*rows, "{broken"]) + "\n", encoding="utf-8")
    (folder / "中文.txt").write_text("春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。\n", encoding="utf-8")
    (folder / "picture.txt").write_bytes(b"\x89PNG" + bytes(100))
    return CorpusSettings(source=str(folder), document="line", min_characters=10, processes=1)


def stats(logs: Path) -> Counter[str]:
    """Every count of every task, steps together."""
    counts: Counter[str] = Counter()
    for path in (logs / "stats").glob("0*.json"):
        for step in json.loads(path.read_text(encoding="utf-8")):
            for name, value in step["stats"].items():
                counts[name] += value["total"] if isinstance(value, dict) else value
    return counts


def write_corpus(folder: Path) -> list[tuple[str, str]]:
    """The lines of all files in the order `meristem pretrain` reads them."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [(row["text"], row["place"]) for row in map(json.loads, lines)]


@pytest.mark.parametrize("tasks", [3, 7])
def test_the_same_documents_places_and_reasons(corpus: CorpusSettings, tmp_path: Path, tasks: int) -> None:
    pipeline = [DatatroveReader(corpus), CleaningFilter(corpus), DatatroveWriter(str(tmp_path / "clean"))]
    LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(tmp_path / "logs")).run()
    corpus_reader = CorpusReader(corpus.model_copy(update={"deduplicate": False}))
    documents = list(corpus_reader)
    assert len({document.location for document in documents}) == len(documents) > 300
    assert write_corpus(tmp_path / "clean") == [(document.text, document.location) for document in documents]
    assert list((tmp_path / "clean").glob(".*")) == []
    statistics = stats(tmp_path / "logs")
    dropped = {name.removeprefix("dropped_"): n for name, n in statistics.items() if name.startswith("dropped_")}
    assert dropped == dict(corpus_reader.account.dropped)
    assert len(dropped) >= 3
    rejected = {name.removeprefix("rejected_"): n for name, n in statistics.items() if name.startswith("rejected_")}
    assert rejected == dict(corpus_reader.account.rejected) != {}
    changed = {name.removeprefix("changed_"): n for name, n in statistics.items() if name.startswith("changed_")}
    assert changed.items() <= corpus_reader.account.repaired.items()
    assert "strip controls" in changed


def test_steps_that_remove_and_tell_languages_work_too(tmp_path: Path) -> None:
    german = "Der alte Gärtner ging am Morgen durch den Garten und sah, dass die Rosen nicht mehr blühten. "
    english = "The old gardener went through the garden in the morning and wrote to ada@example.org about it. "
    rows = [json.dumps({"text": text * (2 + n % 3)}) for n, text in enumerate([german, english] * 6)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    settings = CorpusSettings(source=str(tmp_path / "rows.jsonl"), languages=("en",), pii=True, deduplicate=False)
    pipeline = [DatatroveReader(settings), CleaningFilter(settings), DatatroveWriter(str(tmp_path / "clean"))]
    LocalPipelineExecutor(pipeline, tasks=2, workers=1, logging_dir=str(tmp_path / "logs")).run()
    corpus_reader = CorpusReader(settings)
    assert write_corpus(tmp_path / "clean") == [(document.text, document.location) for document in corpus_reader]
    statistics = stats(tmp_path / "logs")
    assert statistics["dropped_another language: de"] == corpus_reader.account.dropped["another language: de"] == 6
    assert statistics["removed_e-mail"] == corpus_reader.account.removed["e-mail"] > 6
    line = (tmp_path / "clean" / "00000000.jsonl").read_text("utf-8").splitlines()[0]
    assert json.loads(line)["language"] == "en"


def test_the_cleaned_folder_is_the_corpus(corpus: CorpusSettings, tmp_path: Path) -> None:
    pipeline = [DatatroveReader(corpus), CleaningFilter(corpus), DatatroveWriter(str(tmp_path / "clean"))]
    LocalPipelineExecutor(pipeline, tasks=4, workers=1, logging_dir=str(tmp_path / "logs")).run()
    corpus_reader = CorpusReader(CorpusSettings(source=str(tmp_path / "clean"), processes=1))
    our_reader = CorpusReader(corpus)
    assert [(d.text, d.split) for d in corpus_reader] == [(d.text, d.split) for d in our_reader]
    assert corpus_reader.account.dropped["duplicate"] == our_reader.account.dropped["duplicate"] > 0


def test_a_stage_of_one_task_finds_exact_duplicates(corpus: CorpusSettings, tmp_path: Path) -> None:
    step = ExactDedupFilter()
    texts = [document.text for document in step.run(CleaningFilter(corpus).run(DatatroveReader(corpus).run()))]
    assert texts == [document.text for document in CorpusReader(corpus)]
    assert step.stats["dropped_duplicate"].total == 2
    with pytest.raises(MeristemError, match="in one task, not in 3"):
        next(iter(ExactDedupFilter().run([], 0, 3)))


def test_steps_travel_to_other_machines(corpus: CorpusSettings, tmp_path: Path) -> None:
    corpus = corpus.model_copy(update={"quality": QualitySettings(min_words=2, sentences=0, stop_words=0)})
    steps = [
        DatatroveReader(corpus),
        CleaningFilter(corpus),
        ExactDedupFilter(),
        DatatroveWriter(str(tmp_path / "out")),
    ]
    reader, clean, unique, write = dill.loads(dill.dumps(steps))
    expected = [document.text for document in steps[2].run(steps[1].run(steps[0].run()))]
    assert [document.text for document in write.run(unique.run(clean.run(reader.run())))] == expected != []
    assert len(write_corpus(tmp_path / "out")) == len(expected)
    assert dill.loads(dill.dumps(clean)).settings == corpus  # also after it has worked


def test_what_is_dropped_can_be_kept_apart(corpus: CorpusSettings, tmp_path: Path) -> None:
    clean = CleaningFilter(corpus, exclusion_writer=DatatroveWriter(str(tmp_path / "dropped")))
    LocalPipelineExecutor(
        [DatatroveReader(corpus), clean], tasks=2, workers=1, logging_dir=str(tmp_path / "logs")
    ).run()
    lines = [line for path in (tmp_path / "dropped").iterdir() for line in path.read_text("utf-8").splitlines()]
    rows = [json.loads(line) for line in lines]
    assert sorted((row["reason"], row["text"].strip()) for row in rows) == [("empty", ""), ("too short", "short")]
    assert all("rows.jsonl" in row["place"] for row in rows)


def test_a_file_that_is_not_whole_does_not_appear(tmp_path: Path) -> None:
    def broken() -> Any:
        yield Carried(text="one", id="a", metadata={"piece": "00000000"})
        yield Carried(text="two", id="b", metadata={"piece": "00000001"})
        raise RuntimeError("the machine stops here")

    step = DatatroveWriter(str(tmp_path / "out"))
    with pytest.raises(RuntimeError):
        list(step.run(broken()))
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["00000000.jsonl"]
    list(step.run(iter([Carried(text="two", id="b", metadata={"piece": "00000001"})])))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["00000000.jsonl", "00000001.jsonl"]


def test_documents_of_other_readers_are_cleaned_and_written(corpus: CorpusSettings, tmp_path: Path) -> None:
    input_documents = [Carried(text=text, id=f"web/{n}") for n, text in enumerate(["one page of the web  ", "tiny"])]
    list(DatatroveWriter(str(tmp_path / "out")).run(CleaningFilter(corpus).run(iter(input_documents)), rank=5))
    assert write_corpus(tmp_path / "out") == [("one page of the web", "web/0")]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["00000005.jsonl"]


def test_pairs_keep_their_sides(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("en\tde\nA tree. \tEin Baum.\nA house.\tEin Haus.\n", encoding="utf-8")
    settings = CorpusSettings(source=str(tmp_path / "a.tsv"), text="en", target="de")
    list(DatatroveWriter(str(tmp_path / "out")).run(CleaningFilter(settings).run(DatatroveReader(settings).run())))
    rows = [json.loads(line) for line in (tmp_path / "out" / "00000000.jsonl").read_text("utf-8").splitlines()]
    assert [(row["source"], row["target"]) for row in rows] == [("A tree.", "Ein Baum."), ("A house.", "Ein Haus.")]


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_places_count_from_the_start_of_the_file(corpus: CorpusSettings, chunk: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(adapter, "CHUNK", chunk)
    lines = (Path(str(corpus.source)) / "large.txt").read_text("utf-8").split("\n")  # all line ends as newlines
    documents = [document for rank in range(3) for document in DatatroveReader(corpus).run(rank=rank, world_size=3)]
    large = [document for document in documents if "large.txt" in document.id]
    assert len(large) == 300
    for document in large:
        assert lines[int(document.id.rpartition(":")[2]) - 1] == document.text


def test_without_datatrove_the_extra_is_named() -> None:
    code = "import sys; sys.modules['datatrove'] = None; import meristem.interop.datatrove"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 1
    assert 'pip install "meristem-lm[cluster]"' in completed.stderr


def test_a_limit_is_refused(corpus: CorpusSettings) -> None:
    with pytest.raises(MeristemError, match=r"corpus\.limit"):
        DatatroveReader(corpus.model_copy(update={"limit": 3}))
    with pytest.raises(MeristemError, match=r"corpus\.half"):
        DatatroveReader(corpus.model_copy(update={"half": 1}))
