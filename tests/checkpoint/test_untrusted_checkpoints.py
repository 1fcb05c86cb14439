"""Untrusted checkpoints: pickles, links, forged manifests and headers are refused, and nothing is executed."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from meristem.checkpoint import disk, manifest
from meristem.checkpoint.load import find_problems, load_checkpoint
from meristem.checkpoint.manifest import CheckpointManifest
from meristem.checkpoint.save import save_checkpoint
from meristem.config.errors import MeristemError

FILES = ["manifest.json", "memory.safetensors", "model.safetensors", "optimizer.safetensors",
         "recipe.yaml", "state.json", "tokenizer.json"]  # fmt: skip


def reseal(folder: Path, **changes: Any) -> None:
    """Make the manifest true of whatever the files are now, as someone with bad intentions could."""
    content = manifest.read_manifest(folder)
    facts: dict[str, Any] = {
        "step": content.step,
        "aliases": content.aliases,
        "files": {name: disk.digest(folder / name) for name in content.files},
    }
    (folder / "manifest.json").write_bytes(CheckpointManifest(**(facts | changes)).to_bytes())


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/passwd", "sub/model.safetensors", "extra.bin", ""])
def test_a_manifest_may_name_only_the_files_of_a_checkpoint(name: str, two_checkpoints: Path) -> None:
    folder = two_checkpoints / "step-00000020"
    (two_checkpoints / "outside.txt").write_text("secret")
    files = manifest.read_manifest(folder).files | {name: disk.digest(two_checkpoints / "outside.txt")}
    reseal(folder, files=files)
    [problem] = find_problems(folder)
    assert f"names {name!r}, which is not a file of a checkpoint" in problem


@pytest.mark.parametrize("name", FILES)
def test_links_are_refused(name: str, two_checkpoints: Path) -> None:
    path = two_checkpoints / "step-00000020" / name
    path.rename(two_checkpoints / "outside")
    path.symlink_to(two_checkpoints / "outside")
    problems = find_problems(path.parent)
    assert problems and name in problems[0]


def test_a_pipe_is_refused_and_not_waited_for(two_checkpoints: Path) -> None:
    path = two_checkpoints / "step-00000020" / "state.json"
    path.unlink()
    os.mkfifo(path)
    assert find_problems(path.parent) == ["state.json cannot be read: not a regular file"]


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "recipe.yaml"])
def test_text_of_absurd_size_is_refused_unread(name: str, two_checkpoints: Path) -> None:
    folder = two_checkpoints / "step-00000020"
    with (folder / name).open("r+b") as file:
        file.truncate(manifest.MAX_TEXT_BYTES + 1)
    if name != "manifest.json":
        reseal(folder)
    [problem] = find_problems(folder)
    assert problem == f"{name} has 16,777,217 bytes, more than the maximum of 16,777,216"


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, "9" * 5000, "{", '{"a": 1', "\udcff"])
def test_strange_json_is_refused(text: str, two_checkpoints: Path) -> None:
    folder = two_checkpoints / "step-00000020"
    raw = text.encode("utf-8", "surrogateescape")
    (folder / "state.json").write_bytes(raw)
    reseal(folder)
    [problem] = find_problems(folder)
    assert problem.startswith("state.json is not ")
    (folder / "manifest.json").write_bytes(raw)
    [problem] = find_problems(folder)
    assert problem.startswith("manifest.json is damaged")


@pytest.mark.parametrize("change", [
    {"step": "20"}, {"step": True}, {"files": []}, {"files": {}}, {"aliases": None}, {"aliases": {"a": 1}},
    {"files": {"model.safetensors": 5}}, {"extra": 1},
])  # fmt: skip
def test_a_manifest_of_other_types_is_refused(change: dict[str, Any], two_checkpoints: Path) -> None:
    path = two_checkpoints / "step-00000020" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    [problem] = find_problems(path.parent)
    assert problem.startswith("manifest.json is damaged")


def test_a_later_format_is_refused_in_one_sentence_and_nothing_older_takes_its_place(two_checkpoints: Path) -> None:
    reseal(two_checkpoints / "step-00000020", format=7)
    sentence = r"manifest\.json has format 7, and this version of meristem reads formats up to 2: update meristem, or"
    for options in ({}, {"step": 20}, {"weights_only": True}):
        with pytest.raises(MeristemError, match=rf"^\S+step-00000020: {sentence} [^.\n]*$"):
            load_checkpoint(two_checkpoints, **options)
    loaded = load_checkpoint(two_checkpoints, step=10)
    assert loaded is not None and loaded.snapshot.step == 10


def test_a_format_that_was_flipped_is_damage_and_the_older_checkpoint_is_used(two_checkpoints: Path) -> None:
    path = two_checkpoints / "step-00000020" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"format": 2', b'"format": 9'))
    loaded = load_checkpoint(two_checkpoints)
    assert loaded is not None and loaded.snapshot.step == 10
    assert "step-00000020 is damaged: manifest.json" in loaded.notices[0]


def test_older_formats_are_read_and_a_manifest_without_a_number_is_of_the_first(
    two_checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two_checkpoints / "step-00000020"
    content = json.loads((folder / "manifest.json").read_bytes())
    assert content["format"] == manifest.FORMAT == 2
    unnumbered = {name: value for name, value in content.items() if name not in ("format", "seal")}
    (folder / "manifest.json").write_bytes(manifest._dump_with_seal(unnumbered))
    reseal(two_checkpoints / "step-00000010", format=1)
    assert (
        manifest.read_manifest(folder).format == 1 == manifest.read_manifest(two_checkpoints / "step-00000010").format
    )
    reseal(folder, format=2)
    assert manifest.read_manifest(folder).format == 2 and find_problems(folder) == []


@pytest.mark.parametrize("change", [{"format": 0}, {"format": "1"}, {"format": True}, {"format": None}, {"more": 1}])
def test_a_sealed_manifest_with_a_strange_format_is_damaged(change: dict[str, Any], two_checkpoints: Path) -> None:
    folder = two_checkpoints / "step-00000020"
    content = json.loads((folder / "manifest.json").read_bytes())
    body = {name: value for name, value in content.items() if name != "seal"}
    (folder / "manifest.json").write_bytes(manifest._dump_with_seal(body | change))
    [problem] = find_problems(folder)
    assert problem.startswith("manifest.json is damaged: its format")


def test_ties_that_the_model_does_not_bear_out_are_refused(two_checkpoints: Path) -> None:
    for aliases in ({"head.weight": "nothing"}, {"norm.bias": "embedding.weight"}):
        reseal(two_checkpoints / "step-00000020", aliases=aliases)
        [problem] = find_problems(two_checkpoints / "step-00000020")
        assert "ties" in problem


class Bomb:
    """Leaves a file behind when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


def nothing_executed(work: Callable[[], object]) -> None:
    """Run something in a child that an audit hook watches: not a single object is looked up by a pickle."""
    child = os.fork()
    if child == 0:
        watched = ("pickle.find_class", "os.mkdir", "os.system", "subprocess.Popen")
        sys.addaudithook(lambda event, _: os._exit(99) if event in watched else None)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def bombs(target: Path) -> dict[str, bytes]:
    payloads = {f"protocol {protocol}": pickle.dumps(Bomb(target), protocol=protocol) for protocol in range(6)}
    for name, zipped in (("torch.save", True), ("torch.save of old", False)):
        path = target.with_name("made.pt")
        torch.save({"w": Bomb(target)}, path, _use_new_zipfile_serialization=zipped)
        payloads[name] = path.read_bytes()
        path.unlink()
    return payloads


def test_the_bombs_are_live(tmp_path: Path) -> None:
    pickle.loads(bombs(tmp_path / "boom")["protocol 4"])
    assert (tmp_path / "boom").is_dir()
    with pytest.raises(AssertionError):
        nothing_executed(lambda: pickle.loads(bombs(tmp_path / "boom2")["protocol 4"]))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_pickle_named_safetensors_is_refused_and_nothing_executes(
    sealed: bool, two_checkpoints: Path, tmp_path: Path, make: Any, equal_snapshots: Any
) -> None:
    folder = two_checkpoints / "step-00000020"
    for kind, content in bombs(tmp_path / "boom").items():
        (folder / "model.safetensors").write_bytes(content)
        if sealed:
            reseal(folder)
        nothing_executed(lambda: load_checkpoint(two_checkpoints))
        loaded = load_checkpoint(two_checkpoints)
        assert loaded is not None and equal_snapshots(loaded.snapshot, make(10))
        [notice] = loaded.notices
        assert "model.safetensors" in notice, kind
        if kind not in ("protocol 0", "protocol 1"):  # those have no mark of their own
            assert "can run code: it was not opened" in notice, kind
    assert not (tmp_path / "boom").exists()


def test_pickles_instead_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c" / "step-00000010"
    folder.mkdir(parents=True)
    content = bombs(tmp_path / "boom")
    (folder / "pytorch_model.bin").write_bytes(content["torch.save"])
    with pytest.raises(MeristemError, match=r"manifest\.json is missing.*pytorch_model\.bin is a zip archive"):
        load_checkpoint(tmp_path / "c")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "model.pt").write_bytes(content["protocol 2"])
    with pytest.raises(MeristemError, match=r"model\.pt is a pickle"):
        load_checkpoint(tmp_path / "bare")
    with pytest.raises(MeristemError, match="the file is a pickle"):
        load_checkpoint(tmp_path / "bare" / "model.pt")
    assert not (tmp_path / "boom").exists()


def test_a_safetensors_file_that_begins_like_a_pickle_is_not_taken_for_one(tmp_path: Path, make: Any) -> None:
    folder = save_checkpoint(tmp_path / "c", make(10))
    header = b'{"__metadata__":{"pad":"' + b"x" * (640 - 27) + b'"}}'
    (folder / "memory.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert (folder / "memory.safetensors").read_bytes()[:2] == b"\x80\x02"
    assert "has changed" in find_problems(folder)[0] or "instead of" in find_problems(folder)[0]
    reseal(folder)
    assert find_problems(folder) == []


def test_a_hostile_header_is_refused(two_checkpoints: Path) -> None:
    folder = two_checkpoints / "step-00000020"
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    headers = [
        b"",
        b"{",
        b"[]",
        json.dumps({"w": tensor | {"data_offsets": [0, 1 << 60]}}).encode(),
        json.dumps({"w": tensor | {"shape": [1 << 40, 1 << 40]}}).encode(),
        json.dumps({"w": tensor, "v": tensor}).encode(),
    ]
    for header in headers:
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
        reseal(folder)
        assert "model.safetensors is not a safetensors file" in find_problems(folder)[0]
    (folder / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    reseal(folder)
    assert "model.safetensors is not a safetensors file" in find_problems(folder)[0]
