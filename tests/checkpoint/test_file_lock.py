"""File locks: one holder at a time, waiting, and release when a process is killed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from meristem.checkpoint import file_lock


def test_one_process_holds_it_and_the_next_sees_which(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with file_lock.hold_lock(path, wait=False) as acquired:
        assert acquired
        with file_lock.hold_lock(path, wait=False) as second:
            assert not second
        assert file_lock.lock_holder(path) == f"process {os.getpid()}"
    with file_lock.hold_lock(path, wait=False) as acquired_again:
        assert acquired_again


def test_a_holder_without_a_number_is_still_someone(tmp_path: Path) -> None:
    assert file_lock.lock_holder(tmp_path / "nowhere") == "another process"
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    assert file_lock.lock_holder(tmp_path / "odd") == "another process"


def test_waiting_ends_when_it_is_free(tmp_path: Path) -> None:
    path, acquired_file = tmp_path / ".lock", tmp_path / "taken"
    release_read, release_write = os.pipe()
    child = os.fork()
    if child == 0:
        with file_lock.hold_lock(path, wait=False):
            acquired_file.touch()
            os.read(release_read, 1)
        os._exit(0)
    while not acquired_file.exists():
        time.sleep(0.01)
    with file_lock.hold_lock(path, wait=False) as acquired:
        assert not acquired
    threading.Timer(0.1, os.write, (release_write, b"1")).start()  # while this process waits
    with file_lock.hold_lock(path, wait=True) as acquired:
        assert acquired
    os.waitpid(child, 0)


def test_a_killed_process_leaves_no_lock_even_if_its_workers_live_on(tmp_path: Path) -> None:
    path, number = tmp_path / ".lock", tmp_path / "worker"
    child = os.fork()
    if child == 0:
        with file_lock.hold_lock(path, wait=False):
            worker = os.fork()
            if worker == 0:
                time.sleep(30)
                os._exit(0)
            number.write_text(str(worker))
            os._exit(0)
    os.waitpid(child, 0)
    worker = int(number.read_text())
    try:
        os.kill(worker, 0)  # it lives
        deadline = time.monotonic() + 60
        while True:
            with file_lock.hold_lock(path, wait=False) as acquired:
                if acquired or time.monotonic() > deadline:
                    break
            time.sleep(0.01)  # the worker lets go as soon as it begins to run
        assert acquired
    finally:
        os.kill(worker, 9)
