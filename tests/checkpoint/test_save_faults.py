"""A fault at every disk operation of a save: afterwards the old or the new checkpoint loads completely."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meristem.checkpoint import disk
from meristem.checkpoint.folder_layout import read_pointer
from meristem.checkpoint.load import find_problems, load_checkpoint
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError

OPERATIONS = (
    "make_folder",
    "create",
    "write",
    "sync",
    "close",
    "sync_folder",
    "rename",
    "unlink",
    "remove_folder",
    "digest",
)
KILLED = 77


class Faults:
    """Counts operations on the disk, and lets one of them, or every one from it on, fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.seen: list[str] = []
        self.at: int | None = None
        self.fail: Callable[[], None] = lambda: None
        self.lasting = False
        for name in OPERATIONS:
            monkeypatch.setattr(disk, name, self._wrapped(name, getattr(disk, name)))

    def arm(self, fail_at: int | None, fail: Callable[[], None] = lambda: None, lasting: bool = False) -> None:
        self.count, self.seen, self.at, self.fail, self.lasting = 0, [], fail_at, fail, lasting

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any) -> Any:
            number, self.count = self.count, self.count + 1
            self.seen.append(name)
            if self.at is not None and (number == self.at or (self.lasting and number > self.at)):
                if name == "write":  # a failing write may leave a part behind
                    real(arguments[0], memoryview(arguments[1])[: len(arguments[1]) // 2])
                if name == "close":
                    real(*arguments)
                self.fail()
            return real(*arguments)

        return operation


def out_of(code: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(code, os.strerror(code))

    return fail


def killed() -> None:
    os._exit(KILLED)


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of saves, and no fault here needs a real disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def in_a_child(work: Callable[[], object]) -> int:
    """Run something in a forked process; its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# What was saved before (step, salt), and what is being saved when the fault comes.
SITUATIONS = {
    "the first": ([], (10, 0)),
    "the next, retiring one": ([(10, 0)], (20, 0)),
    "the same step, other content": ([(10, 0)], (10, 1)),
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("kind", ["ENOSPC from then on", "EIO", "kill"])
def test_every_operation_may_fail(
    situation: str, kind: str, quick: Path, faults: Faults, make: Any, equal_snapshots: Any
) -> None:
    before, (step, salt) = SITUATIONS[situation]
    old, new = [make(*snapshot) for snapshot in before], make(step, salt)

    started, dry = quick / "begun", quick / "dry"
    started.mkdir()
    for snapshot in old:
        save_checkpoint(started, snapshot, keep_checkpoints=1, is_best=True)
    shutil.copytree(started, dry)
    faults.arm(None)
    save_checkpoint(dry, new, keep_checkpoints=1, is_best=True)
    operations = faults.seen
    assert {"make_folder", "create", "write", "sync", "close", "sync_folder", "rename"} <= set(operations)

    for index in range(len(operations)):
        folder = Path(shutil.copytree(started, quick / str(index)))
        reported = _save_failing(folder, new, faults, kind, index)
        faults.arm(None)
        loaded = load_checkpoint(folder)
        operation_name = f"operation {index} ({operations[index]})"
        if loaded is None:
            assert not old, operation_name
        else:
            assert any(equal_snapshots(loaded.snapshot, good) for good in (*old, new)), operation_name
            expected = "is later than" if old else "`latest` names no checkpoint"
            assert all(expected in notice for notice in loaded.notices), operation_name
        if read_pointer(folder, "latest") == step and loaded is not None and equal_snapshots(loaded.snapshot, new):
            assert read_pointer(folder, "best") == step, (
                operation_name
            )  # a run resumed from here would never name it the best
        assert all(find_problems(checkpoint_folder) == [] for checkpoint_folder in folder.glob("step-*")), (
            operation_name
        )  # never a half one under its name
        if reported == "done":
            assert loaded is not None and equal_snapshots(loaded.snapshot, new), operation_name
        save_checkpoint(
            folder, new, keep_checkpoints=1, is_best=True
        )  # the next attempt succeeds, and leaves nothing of the failed one
        checkpoint = load_checkpoint(folder)
        assert checkpoint is not None and equal_snapshots(checkpoint.snapshot, new), operation_name
        assert checkpoint.notices == (), operation_name
        assert {path.name for path in folder.iterdir()} == {".lock", "latest", "best", checkpoint.path.name}, (
            operation_name
        )


def _save_failing(folder: Path, snapshot: Snapshot, faults: Faults, kind: str, fail_at: int) -> str:
    """Save with one fault, and say what the caller was told."""
    if kind == "kill":
        faults.arm(fail_at, killed)
        code = in_a_child(lambda: save_checkpoint(folder, snapshot, keep_checkpoints=1, is_best=True))
        assert code == KILLED
        return "killed"
    faults.arm(fail_at, out_of(getattr(errno, kind.split()[0])), lasting="from then on" in kind)
    try:
        save_checkpoint(folder, snapshot, keep_checkpoints=1, is_best=True)
    except MeristemError as error:
        assert "could not be saved" in str(error)
        return "refused"
    return "done"


def test_a_full_disk_is_reported_and_cleaned_up(tmp_path: Path, faults: Faults, make: Any) -> None:
    save_checkpoint(tmp_path / "c", make(10))
    faults.arm(8, out_of(errno.ENOSPC))
    with pytest.raises(MeristemError) as error:
        save_checkpoint(tmp_path / "c", make(20))
    assert "step-00000020" in str(error.value)
    assert "No space left" in str(error.value)
    assert "the last good checkpoint is kept: step-00000010" in str(error.value)
    assert "free some disk space" in str(error.value)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {".lock", "latest", "step-00000010"}


def test_a_first_save_that_fails_does_not_promise_an_earlier_one(tmp_path: Path, faults: Faults, make: Any) -> None:
    faults.arm(0, out_of(errno.EIO))
    with pytest.raises(MeristemError, match="there is no earlier one"):
        save_checkpoint(tmp_path / "c", make(10))


def test_a_disk_that_gives_back_other_bytes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, equal_snapshots: Any
) -> None:
    save_checkpoint(tmp_path / "c", make(10))
    real = disk.write

    def rotten(file: int, data: disk.BytesLike) -> None:
        real(file, bytes(data[:-1]) + bytes([data[-1] ^ 1]))

    monkeypatch.setattr(disk, "write", rotten)
    with pytest.raises(MeristemError, match="returned other data than was written"):
        save_checkpoint(tmp_path / "c", make(20))
    monkeypatch.undo()
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))


def test_old_checkpoints_that_cannot_be_removed_are_reported_and_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path / "c", make(10))
    with monkeypatch.context() as patched:
        patched.setattr(disk, "remove_folder", lambda path: out_of(errno.EIO)())
        saved = save_checkpoint(tmp_path / "c", make(20), keep_checkpoints=1)
    assert saved.name == "step-00000020"
    assert "could not be removed" in caplog.text
    save_checkpoint(tmp_path / "c", make(30), keep_checkpoints=1)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {".lock", "latest", "step-00000030"}
