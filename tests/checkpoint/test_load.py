"""Loading checkpoints: damage is detected and reported, and the newest intact one is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from meristem.checkpoint import folder_layout, manifest
from meristem.checkpoint.load import find_problems, load_checkpoint
from meristem.checkpoint.save import save_checkpoint
from meristem.config.errors import MeristemError

FILES = ["manifest.json", "memory.safetensors", "model.safetensors", "optimizer.safetensors",
         "recipe.yaml", "state.json", "tokenizer.json"]  # fmt: skip


def test_without_checkpoints_there_is_nothing_to_load(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / "empty").mkdir()
    assert load_checkpoint(tmp_path / "empty") is None


def test_a_good_one_loads_without_a_word(two_checkpoints: Path, make: Any, equal_snapshots: Any) -> None:
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(20))
    assert loaded.path == two_checkpoints / "step-00000020"
    assert loaded.notices == ()


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Flipped bits at the start, in the header, in the middle and at the end; cuts; and bytes too many."""
    last = len(content) - 1
    for position in sorted({0, 7, 8, 9, last // 3, last // 2, last}):
        for bit in (0, 7):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            yield f"bit {bit} of byte {position}", bytes(flipped)
    for length in (0, 1, 8, last // 2, last):
        yield f"cut to {length}", content[:length]
    yield "longer", content + b"\0"


@pytest.mark.parametrize("name", FILES)
def test_any_damage_is_named_and_the_older_one_used(
    name: str, two_checkpoints: Path, make: Any, equal_snapshots: Any
) -> None:
    path = two_checkpoints / "step-00000020" / name
    content = path.read_bytes()
    for damage, broken in damages(content):
        path.write_bytes(broken)
        loaded = load_checkpoint(two_checkpoints)
        assert loaded is not None and equal_snapshots(loaded.snapshot, make(10)), damage
        assert len(loaded.notices) == 1, damage
        assert "step-00000020 is damaged" in loaded.notices[0] and name in loaded.notices[0], damage
    path.unlink()
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and f"{name} is missing" in loaded.notices[0]
    path.write_bytes(content)
    assert find_problems(path.parent) == []


def test_no_bit_of_the_manifest_may_change(two_checkpoints: Path) -> None:
    content = (two_checkpoints / "step-00000020" / "manifest.json").read_bytes()
    accepted = []
    for index in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[index] ^= 1 << bit
            with suppress(MeristemError):
                accepted.append((index, bit, manifest.parse_manifest(bytes(flipped))))
    assert accepted == []
    assert manifest.parse_manifest(content).step == 20


def test_when_none_is_good_each_is_named(two_checkpoints: Path) -> None:
    (two_checkpoints / "step-00000010" / "state.json").unlink()
    (two_checkpoints / "step-00000020" / "model.safetensors").write_bytes(b"")
    with pytest.raises(MeristemError) as error:
        load_checkpoint(two_checkpoints)
    assert "step-00000010 is damaged: state.json is missing" in str(error.value)
    assert "step-00000020 is damaged: model.safetensors has 0 bytes instead of" in str(error.value)


def test_a_step_can_be_requested(two_checkpoints: Path, make: Any, equal_snapshots: Any) -> None:
    loaded = load_checkpoint(two_checkpoints, step=10)
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))
    with pytest.raises(MeristemError, match="no checkpoint of step 15; there are: 20, 10"):
        load_checkpoint(two_checkpoints, step=15)
    (two_checkpoints / "step-00000010" / "recipe.yaml").write_text("other")
    with pytest.raises(MeristemError, match=r"step-00000010 is damaged: recipe\.yaml"):
        load_checkpoint(two_checkpoints, step=10)


def test_a_damaged_best_gives_way_to_the_latest(two_checkpoints: Path, make: Any, equal_snapshots: Any) -> None:
    save_checkpoint(two_checkpoints, make(30), is_best=True)
    save_checkpoint(two_checkpoints, make(40))
    (two_checkpoints / "step-00000030" / "model.safetensors").unlink()
    loaded = load_checkpoint(two_checkpoints, which="best")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(40))
    assert "step-00000030 is damaged" in loaded.notices[0]


def test_where_none_is_marked_best_that_is_said(two_checkpoints: Path, make: Any, equal_snapshots: Any) -> None:
    loaded = load_checkpoint(two_checkpoints, which="best")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(20))
    assert loaded.notices == ("`best` names no checkpoint: the newest intact one is used",)


@pytest.mark.parametrize(("pointer", "message"), [
    (None, "names no checkpoint"), ("", "names no checkpoint"), ("step-00000099\n", "step-00000099, which is gone"),
    ("../../etc\n", "names no checkpoint"), ("\0" * 40, "names no checkpoint"), ("step-١٠", "names no checkpoint"),
])  # fmt: skip
def test_a_broken_pointer_is_reported_and_the_newest_checkpoint_used(
    pointer: str | None, message: str, two_checkpoints: Path, make: Any, equal_snapshots: Any
) -> None:
    (two_checkpoints / "latest").unlink()
    if pointer is not None:
        (two_checkpoints / "latest").write_text(pointer, encoding="utf-8")
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(20))
    assert len(loaded.notices) == 1 and message in loaded.notices[0]


def test_a_later_checkpoint_than_latest_names_is_reported(
    two_checkpoints: Path, make: Any, equal_snapshots: Any
) -> None:
    (two_checkpoints / "latest").write_text("step-00000010\n")
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))
    assert loaded.notices == ("step-00000020 is later than step-00000010, which `latest` names",)


def test_folders_of_other_names_are_not_checkpoints(two_checkpoints: Path) -> None:
    for name in ("step-99", "step-0000000099", "step-00000099.bak", "tmp"):
        (two_checkpoints / name).mkdir()
    (two_checkpoints / "step-00000099").write_text("a file")
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and loaded.notices == ()


def test_a_renamed_checkpoint_is_noticed(two_checkpoints: Path) -> None:
    (two_checkpoints / "step-00000020").rename(two_checkpoints / "step-00000030")
    assert find_problems(two_checkpoints / "step-00000030") == ["manifest.json is for step 20: the folder was renamed"]
    (two_checkpoints / "step-00000030").rename(two_checkpoints / "a copy elsewhere")
    assert find_problems(two_checkpoints / "a copy elsewhere") == []


def test_loaded_tensors_do_not_depend_on_the_file(two_checkpoints: Path, make: Any) -> None:
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None
    os.truncate(loaded.path / "model.safetensors", 0)
    assert torch.equal(loaded.snapshot.model["norm.bias"], make(20).model["norm.bias"])


def test_reading_while_another_process_saves(tmp_path: Path, make: Any, equal_snapshots: Any) -> None:
    snapshots = [replace(make(step), tokenizer=None) for step in range(30)]
    save_checkpoint(tmp_path / "c", snapshots[0], keep_checkpoints=1)
    child = os.fork()
    if child == 0:
        for snapshot in snapshots[1:]:
            save_checkpoint(tmp_path / "c", snapshot, keep_checkpoints=1)
        os._exit(0)
    steps = []
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        loaded = load_checkpoint(tmp_path / "c")
        assert loaded is not None and equal_snapshots(loaded.snapshot, snapshots[loaded.snapshot.step])
        assert not any("damaged" in notice for notice in loaded.notices)
        steps.append(loaded.snapshot.step)
    assert len(set(steps)) > 3 and steps == sorted(steps)


def test_a_listing_that_misses_a_checkpoint_during_a_save_is_repeated(
    two_checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = iter([[], []])
    list_steps = folder_layout.list_steps
    monkeypatch.setattr(folder_layout, "list_steps", lambda folder: next(listings, None) or list_steps(folder))
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and loaded.snapshot.step == 20
