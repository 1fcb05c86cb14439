"""Saving checkpoints: files, types, tied tensors, retention and replacement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from meristem.checkpoint import file_lock, folder_layout, tensors
from meristem.checkpoint.load import find_problems, load_checkpoint
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError


def folders(checkpoints: Path) -> list[str]:
    return sorted(path.name for path in checkpoints.iterdir() if path.is_dir())


def snapshot(**parts: Any) -> Snapshot:
    defaults = {"step": 1, "model": {}, "optimizer": {}, "memory": {}, "state": {}, "recipe": "", "tokenizer": None}
    return Snapshot(**(defaults | parts))


def test_the_folder_is_as_designed(tmp_path: Path, make: Any, tokenizer: Path) -> None:
    folder = save_checkpoint(tmp_path / "c", make(1000))
    assert folder == tmp_path / "c" / "step-00001000"
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "memory.safetensors", "model.safetensors", "optimizer.safetensors",
        "recipe.yaml", "state.json", "tokenizer.json",
    ]  # fmt: skip
    assert (tmp_path / "c" / "latest").read_text() == "step-00001000\n"
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["step"]) == (2, 1000)
    assert manifest["aliases"] == {"head.weight": "embedding.weight"}
    for name, facts in manifest["files"].items():
        assert facts["size"] == (folder / name).stat().st_size


def test_memory_and_tokenizer_are_left_out_where_there_are_none(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "c", snapshot(model={"w": torch.ones(2)}))
    names = {path.name for path in folder.iterdir()}
    assert names == {"manifest.json", "model.safetensors", "optimizer.safetensors", "recipe.yaml", "state.json"}
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and loaded.snapshot.memory == {} and loaded.snapshot.tokenizer is None


def test_every_type_and_shape_comes_back_bit_for_bit(tmp_path: Path, equal_snapshots: Any) -> None:
    rng = torch.Generator().manual_seed(3)
    model = {}
    for dtype in tensors.DTYPE_NAMES:
        raw = torch.randint(0, 2 if dtype is torch.bool else 256, (6, 40), generator=rng, dtype=torch.uint8)
        values = raw.view(dtype)  # any bits at all: infinities, several NaNs, negative zeros, denormals
        model |= {
            f"{dtype}.whole": values,
            f"{dtype}.number": values[2, 1],
            f"{dtype}.empty": values[:0],
            f"{dtype}.turned": values.t(),
            f"{dtype}.strided": values[::2, ::3],
            f"{dtype}.spread": values[:1].expand(4, -1),
        }
    model["gradient"] = torch.nn.Parameter(torch.randn(3, generator=rng))
    before = snapshot(model=model, optimizer=dict(model), memory=dict(model))
    save_checkpoint(tmp_path / "c", before)
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, before)


def test_what_is_written_is_what_the_library_reads(tmp_path: Path, make: Any) -> None:
    folder = save_checkpoint(tmp_path / "c", make(5))
    file = safetensors.torch.load_file(folder / "optimizer.safetensors")
    assert file.keys() == make(5).optimizer.keys()
    assert all(torch.equal(file[name], tensor) for name, tensor in make(5).optimizer.items())


def test_tied_tensors_are_stored_once_and_come_back_tied(tmp_path: Path, make: Any) -> None:
    folder = save_checkpoint(tmp_path / "c", make(5))
    assert tensors.read_names(folder / "model.safetensors") == {"embedding.weight", "norm.bias"}
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None
    model = loaded.snapshot.model
    assert model["head.weight"].data_ptr() == model["embedding.weight"].data_ptr()
    assert model["norm.bias"].data_ptr() != model["embedding.weight"].data_ptr()


def test_views_that_only_overlap_are_not_tied(tmp_path: Path, equal_snapshots: Any) -> None:
    fused = torch.arange(12.0).reshape(3, 4)
    before = snapshot(
        model={
            "all": fused,
            "first": fused[:1],
            "turned": fused.t(),
            "flat": fused.reshape(-1),
            "bits": fused.view(torch.int32),
            "none": fused[:0],
            "nothing": fused[:0],
        }
    )
    save_checkpoint(tmp_path / "c", before)
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, before)
    assert tensors.find_aliases(before.model) == {}


def test_large_tensors_are_streamed_in_chunks(
    tmp_path: Path, equal_snapshots: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meristem.checkpoint.disk.CHUNK", 100)
    before = snapshot(model={"w": torch.arange(1001.0), "v": torch.arange(25.0)})
    assert max(len(chunk) for chunk in list(tensors.encode_safetensors(before.model))[1:]) == 100
    save_checkpoint(tmp_path / "c", before)
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, before)


def test_the_state_keeps_every_float_exactly(tmp_path: Path) -> None:
    state = {"loss": [0.1 + 0.2, 1e-310, 1.7976931348623157e308, float("inf")], "tokens": 2**63, "名": {"深": None}}
    save_checkpoint(tmp_path / "c", snapshot(state=state))
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and loaded.snapshot.state == state


def test_the_newest_are_kept(tmp_path: Path, make: Any) -> None:
    for step in (10, 20, 30, 40, 50):
        save_checkpoint(tmp_path / "c", make(step), keep_checkpoints=2)
    assert folders(tmp_path / "c") == ["step-00000040", "step-00000050"]


def test_the_best_is_kept_until_there_is_a_better_one(tmp_path: Path, make: Any, equal_snapshots: Any) -> None:
    for step in (10, 20, 30, 40):
        save_checkpoint(tmp_path / "c", make(step), keep_checkpoints=1, is_best=step == 20)
    assert folders(tmp_path / "c") == ["step-00000020", "step-00000040"]
    best, latest = load_checkpoint(tmp_path / "c", which="best"), load_checkpoint(tmp_path / "c")
    assert best is not None and equal_snapshots(best.snapshot, make(20))
    assert latest is not None and equal_snapshots(latest.snapshot, make(40))
    save_checkpoint(tmp_path / "c", make(50), keep_checkpoints=1, is_best=True)
    assert folders(tmp_path / "c") == ["step-00000050"]
    assert (tmp_path / "c" / "best").read_text() == "step-00000050\n"


def test_a_run_that_went_back_deletes_later_steps_first(tmp_path: Path, make: Any, equal_snapshots: Any) -> None:
    for step in (10, 20, 30):
        save_checkpoint(tmp_path / "c", make(step))
    save_checkpoint(tmp_path / "c", make(15), keep_checkpoints=2)
    assert folders(tmp_path / "c") == ["step-00000010", "step-00000015"]
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(15))


def test_steps_beyond_eight_digits_sort_as_numbers(tmp_path: Path, make: Any) -> None:
    for step in (99_999_999, 100_000_000, 250_000_000):
        save_checkpoint(tmp_path / "c", make(step), keep_checkpoints=2)
    assert folders(tmp_path / "c") == ["step-100000000", "step-250000000"]


def test_a_step_reached_again_with_the_same_content_is_left_alone(tmp_path: Path, make: Any) -> None:
    folder = save_checkpoint(tmp_path / "c", make(10))
    before = (folder / "model.safetensors").stat().st_ino
    save_checkpoint(tmp_path / "c", make(10))
    assert (folder / "model.safetensors").stat().st_ino == before
    assert folders(tmp_path / "c") == ["step-00000010"]


def test_a_step_reached_again_with_other_content_is_replaced(tmp_path: Path, make: Any, equal_snapshots: Any) -> None:
    save_checkpoint(tmp_path / "c", make(10))
    save_checkpoint(tmp_path / "c", make(10, salt=1))
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(10, salt=1))
    assert folders(tmp_path / "c") == ["step-00000010"]


def test_a_damaged_step_reached_again_is_mended(tmp_path: Path, make: Any) -> None:
    folder = save_checkpoint(tmp_path / "c", make(10))
    (folder / "model.safetensors").write_bytes(b"broken")
    save_checkpoint(tmp_path / "c", make(10))
    assert find_problems(folder) == []


def test_leftovers_of_a_killed_save_are_ignored_and_removed(tmp_path: Path, make: Any, equal_snapshots: Any) -> None:
    save_checkpoint(tmp_path / "c", make(10))
    for prefix in (folder_layout.WRITING_PREFIX, folder_layout.RETIRED_PREFIX, folder_layout.REPLACED_PREFIX):
        save_checkpoint(tmp_path / "other", make(10)).rename(tmp_path / "c" / f"{prefix}step-00000010")
    (tmp_path / "c" / f"{folder_layout.WRITING_PREFIX}step-00000090").mkdir()
    (tmp_path / "c" / ".DS_Store").write_bytes(b"not ours")
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))
    assert loaded.notices == ()
    assert {path.name for path in (tmp_path / "c").iterdir()} == {".lock", ".DS_Store", "latest", "step-00000010"}


def test_reading_does_not_disturb_a_save_in_progress(tmp_path: Path, make: Any) -> None:
    save_checkpoint(tmp_path / "c", make(10))
    under_way = tmp_path / "c" / f"{folder_layout.WRITING_PREFIX}step-00000020"
    under_way.mkdir()
    with file_lock.hold_lock(tmp_path / "c" / folder_layout.LOCK_NAME, wait=False) as acquired:
        assert acquired and load_checkpoint(tmp_path / "c") is not None
        assert under_way.exists()
    assert load_checkpoint(tmp_path / "c") is not None
    assert not under_way.exists()


def test_what_cannot_be_saved_is_refused_before_anything_is_lost(
    tmp_path: Path, make: Any, equal_snapshots: Any
) -> None:
    save_checkpoint(tmp_path / "c", make(10), keep_checkpoints=1)
    wrong = [
        (snapshot(step=20, model={"z": torch.zeros(1, dtype=torch.complex128)}), "z: tensors of torch.complex128"),
        (snapshot(step=20, state={"much": "x" * (17 << 20)}), "state.json would have"),
        (snapshot(step=20, tokenizer=tmp_path / "nowhere.json"), "nowhere.json"),
        (snapshot(step=-1), "step ≥ 0"),
    ]
    for bad, message in wrong:
        with pytest.raises(MeristemError, match=message):
            save_checkpoint(tmp_path / "c", bad, keep_checkpoints=1)
    with pytest.raises(MeristemError, match="keep ≥ 1"):
        save_checkpoint(tmp_path / "c", make(20), keep_checkpoints=0)
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "c", snapshot(step=20, state={"set": {1}}), keep_checkpoints=1)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {".lock", "latest", "step-00000010"}
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))


def test_a_tokenizer_behind_a_link_is_copied(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "link.json").symlink_to(tokenizer)
    folder = save_checkpoint(tmp_path / "c", snapshot(tokenizer=tmp_path / "link.json"))
    assert not (folder / "tokenizer.json").is_symlink()
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.read_bytes()


def test_paths_may_have_any_name(tmp_path: Path, make: Any, equal_snapshots: Any) -> None:
    for name in ("模型 实验", "ü'\" run", "a" * 200):
        save_checkpoint(tmp_path / name / "检查点", make(10))
        loaded = load_checkpoint(tmp_path / name / "检查点")
        assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))
