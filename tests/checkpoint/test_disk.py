"""Disk operations: digests, atomic writes, chunked reads and folder syncs."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from meristem.checkpoint import disk


def test_what_is_stored_is_digested_on_the_way(tmp_path: Path) -> None:
    content = os.urandom(1000)
    digest = disk.write_file(tmp_path / "file", [content[:300], memoryview(content)[300:], b""])
    assert (tmp_path / "file").read_bytes() == content
    assert digest == disk.Digest(1000, hashlib.sha256(content).hexdigest()) == disk.read_back_digest(tmp_path / "file")


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        disk.write_file(tmp_path / "file", [b"yours"])
    assert (tmp_path / "file").read_text() == "mine"


def test_a_system_that_takes_little_at_once_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    disk.write_file(tmp_path / "file", [bytes(range(256))])
    assert (tmp_path / "file").read_bytes() == bytes(range(256))


def test_files_longer_than_a_chunk_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CHUNK", 64)
    (tmp_path / "file").write_bytes(bytes(range(256)) * 3)
    assert b"".join(map(bytes, disk.read_chunks(tmp_path / "file"))) == bytes(range(256)) * 3
    assert disk.digest(tmp_path / "file").size == 768


def test_replacing_clears_what_an_earlier_attempt_left(tmp_path: Path) -> None:
    (tmp_path / ".pointer.new").write_text("torn")
    disk.atomic_write(tmp_path / "pointer", [b"one"])
    disk.atomic_write(tmp_path / "pointer", [b"two"])
    assert (tmp_path / "pointer").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["pointer"]


def test_removing_a_folder_follows_no_link_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("keep")
    (tmp_path / "old" / "deep").mkdir(parents=True)
    (tmp_path / "old" / "deep" / "file").write_text("go")
    (tmp_path / "old" / "link").symlink_to(tmp_path / "precious")
    disk.remove_tree(tmp_path / "old")
    assert not (tmp_path / "old").exists()
    assert (tmp_path / "precious" / "data").read_text() == "keep"


def test_a_disk_that_cannot_sync_folders_is_put_up_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: int) -> None:
        def fsync(file: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fsync)

    refuse(errno.EINVAL)
    disk.sync_folder(tmp_path)
    refuse(errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_folder(tmp_path)
