"""Worker processes that read a corpus."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.read_ranges import RANGE_BYTES, ReadRange
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.worker_pool import MAX_BATCHES_AHEAD, ReadWorkerPool
from meristem.data.sources import FileSource

SETTINGS = CorpusSettings(document="line", deduplicate=False)


@pytest.fixture
def pieces(tmp_path: Path) -> list[ReadRange]:
    ranges = []
    for number in range(6):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"file {number} line {line}\n" for line in range(2_000)))
        ranges.append(ReadRange(FileSource(path, ".txt", "", path.stat().st_size)))
    return ranges


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_results_come_in_order(pieces, processes):
    with ReadWorkerPool(pieces, SETTINGS, processes) as workers:
        for number in range(len(pieces)):
            texts = [text for batch in workers.batches(number) for text in batch.texts]
            assert texts == [f"file {number} line {line}" for line in range(2_000)]


def test_leaving_ends_the_workers(pieces):
    with ReadWorkerPool(pieces, SETTINGS, 3) as workers:
        next(workers.batches(0))
        children = [worker.process.pid for worker in workers._workers]
        assert all(psutil.pid_exists(pid) for pid in children)
    assert not any(psutil.pid_exists(pid) for pid in children)


def test_a_worker_that_dies_is_an_error_naming_its_file(tmp_path):
    path = tmp_path / "large.txt"
    path.write_text(("a long line of text " * 100 + "\n") * (4 * MAX_BATCHES_AHEAD * 140))
    with ReadWorkerPool([ReadRange(FileSource(path, ".txt", "", path.stat().st_size))] * 2, SETTINGS, 2) as workers:
        stream = workers.batches(0)
        next(stream)
        os.kill(workers._workers[0].process.pid, signal.SIGKILL)
        with pytest.raises(MeristemError, match=r"large\.txt: the process reading it ended unexpectedly \(SIGKILL"):
            list(stream)


def test_a_worker_s_complaint_reaches_the_person(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": "x", "review": "y"}\n')
    with (
        ReadWorkerPool([ReadRange(FileSource(path, ".jsonl", "", 30))], SETTINGS, 1) as workers,
        pytest.raises(MeristemError, match=r"a\.jsonl:1: which column holds the text"),
    ):
        list(workers.batches(0))


def test_a_slow_consumer_holds_the_workers_back(tmp_path):
    path = tmp_path / "large.txt"
    path.write_text(("a long line of text " * 100 + "\n") * 12_000)  # 24 MB, over ninety batches
    with ReadWorkerPool([ReadRange(FileSource(path, ".txt", "", path.stat().st_size))] * 2, SETTINGS, 2) as workers:
        for _ in zip(range(60), workers.batches(0), strict=False):
            assert all(len(worker.queue) <= MAX_BATCHES_AHEAD for worker in workers._workers)


def test_leaving_a_reading_early_leaves_no_process(tmp_path):
    path = tmp_path / "large.txt"
    path.write_text("".join(f"line {number} of text\n" for number in range(900_000)))
    assert path.stat().st_size > 3 * RANGE_BYTES
    before = set(psutil.Process().children())
    documents = iter(CorpusReader(CorpusSettings(source=str(path), processes=2)))
    next(documents)
    assert len(set(psutil.Process().children()) - before) == 2
    documents.close()
    assert set(psutil.Process().children()) == before


READ_FOR_EVER = """
import sys
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
reading = CorpusReader(CorpusSettings(source=sys.argv[1], processes=2))
try:
    while True:
        for document in reading:
            print("going", flush=True) if document.location.endswith(":5000") else None
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_interrupting_leaves_nothing_behind(tmp_path, signal_number):
    path = tmp_path / "large.txt"
    path.write_text("".join(f"line {number} of text\n" for number in range(900_000)))
    run = subprocess.Popen(
        [sys.executable, "-c", READ_FOR_EVER, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout and run.stdout.readline() == b"going\n"
    workers = psutil.Process(run.pid).children()
    assert len(workers) == 2
    if signal_number == signal.SIGINT:
        os.killpg(run.pid, signal_number)  # as the terminal does
    else:
        run.send_signal(signal_number)
    _, errors = run.communicate(timeout=20)
    assert run.returncode == (130 if signal_number == signal.SIGINT else -signal_number)
    assert b"Traceback" not in errors
    deadline = time.monotonic() + 10
    while any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
