from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from meristem.checkpoint import disk, manifest
from meristem.checkpoint.load import load, verify
from meristem.checkpoint.manifest import Manifest
from meristem.checkpoint.save import save
from meristem.settings import MeristemError

FILES = ["manifest.json", "memory.safetensors", "model.safetensors", "optimizer.safetensors",
         "recipe.yaml", "state.json", "tokenizer.json"]  # fmt: skip


@pytest.fixture
def two(tmp_path: Path, make: Any) -> Path:
    """Checkpoints of step 10 and 20."""
    for step in (10, 20):
        save(tmp_path / "c", make(step))
    return tmp_path / "c"


def reseal(folder: Path, **changes: Any) -> None:
    """Make the manifest true of whatever the files are now, as someone with bad intentions could."""
    content = manifest.read(folder)
    facts: dict[str, Any] = {"step": content.step, "aliases": content.aliases,
                             "files": {name: disk.digest(folder / name) for name in content.files}}
    (folder / "manifest.json").write_bytes(Manifest(**(facts | changes)).text())


def test_without_checkpoints_there_is_nothing_to_load(tmp_path: Path) -> None:
    assert load(tmp_path / "nowhere") is None
    (tmp_path / "empty").mkdir()
    assert load(tmp_path / "empty") is None


def test_a_good_one_loads_without_a_word(two: Path, make: Any, same: Any) -> None:
    loaded = load(two)
    assert loaded is not None and same(loaded.snapshot, make(20))
    assert loaded.path == two / "step-00000020"
    assert loaded.notices == ()


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Flipped bits at the start, in the header, in the middle and at the end; cuts; and bytes too many."""
    last = len(content) - 1
    for place in sorted({0, 7, 8, 9, last // 3, last // 2, last}):
        for bit in (0, 7):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            yield f"bit {bit} of byte {place}", bytes(flipped)
    for length in (0, 1, 8, last // 2, last):
        yield f"cut to {length}", content[:length]
    yield "longer", content + b"\0"


@pytest.mark.parametrize("name", FILES)
def test_any_damage_is_named_and_the_older_one_used(name: str, two: Path, make: Any, same: Any) -> None:
    path = two / "step-00000020" / name
    whole = path.read_bytes()
    for what, broken in damages(whole):
        path.write_bytes(broken)
        loaded = load(two)
        assert loaded is not None and same(loaded.snapshot, make(10)), what
        assert len(loaded.notices) == 1, what
        assert "step-00000020 is damaged" in loaded.notices[0] and name in loaded.notices[0], what
    path.unlink()
    loaded = load(two)
    assert loaded is not None and f"{name} is missing" in loaded.notices[0]
    path.write_bytes(whole)
    assert verify(path.parent) == []


def test_no_bit_of_the_manifest_may_change(two: Path) -> None:
    whole = (two / "step-00000020" / "manifest.json").read_bytes()
    accepted = []
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            with suppress(MeristemError):
                accepted.append((place, bit, manifest.parse(bytes(flipped))))
    assert accepted == []
    assert manifest.parse(whole).step == 20


def test_when_none_is_good_each_is_named(two: Path) -> None:
    (two / "step-00000010" / "state.json").unlink()
    (two / "step-00000020" / "model.safetensors").write_bytes(b"")
    with pytest.raises(MeristemError) as told:
        load(two)
    assert "step-00000010 is damaged: state.json is missing" in str(told.value)
    assert "step-00000020 is damaged: model.safetensors has 0 bytes instead of" in str(told.value)


def test_a_step_can_be_asked_for(two: Path, make: Any, same: Any) -> None:
    loaded = load(two, step=10)
    assert loaded is not None and same(loaded.snapshot, make(10))
    with pytest.raises(MeristemError, match="no checkpoint of step 15; there are: 20, 10"):
        load(two, step=15)
    (two / "step-00000010" / "recipe.yaml").write_text("other")
    with pytest.raises(MeristemError, match=r"step-00000010 is damaged: recipe\.yaml"):
        load(two, step=10)


def test_a_damaged_best_gives_way_to_the_latest(two: Path, make: Any, same: Any) -> None:
    save(two, make(30), best=True)
    save(two, make(40))
    (two / "step-00000030" / "model.safetensors").unlink()
    loaded = load(two, which="best")
    assert loaded is not None and same(loaded.snapshot, make(40))
    assert "step-00000030 is damaged" in loaded.notices[0]


def test_where_none_is_marked_best_that_is_said(two: Path, make: Any, same: Any) -> None:
    loaded = load(two, which="best")
    assert loaded is not None and same(loaded.snapshot, make(20))
    assert loaded.notices == ("`best` names no checkpoint: the newest good one is used",)


@pytest.mark.parametrize(("pointer", "told"), [
    (None, "names no checkpoint"), ("", "names no checkpoint"), ("step-00000099\n", "step-00000099, which is gone"),
    ("../../etc\n", "names no checkpoint"), ("\0" * 40, "names no checkpoint"), ("step-١٠", "names no checkpoint"),
])  # fmt: skip
def test_a_broken_pointer_is_told_and_the_newest_used(
    pointer: str | None, told: str, two: Path, make: Any, same: Any
) -> None:
    (two / "latest").unlink()
    if pointer is not None:
        (two / "latest").write_text(pointer, encoding="utf-8")
    loaded = load(two)
    assert loaded is not None and same(loaded.snapshot, make(20))
    assert len(loaded.notices) == 1 and told in loaded.notices[0]


def test_a_newer_one_than_latest_names_is_told(two: Path, make: Any, same: Any) -> None:
    (two / "latest").write_text("step-00000010\n")
    loaded = load(two)
    assert loaded is not None and same(loaded.snapshot, make(10))
    assert loaded.notices == ("step-00000020 lies beyond step-00000010, which `latest` names",)


def test_folders_of_other_names_are_not_checkpoints(two: Path) -> None:
    for name in ("step-99", "step-0000000099", "step-00000099.bak", "tmp"):
        (two / name).mkdir()
    (two / "step-00000099").write_text("a file")
    loaded = load(two)
    assert loaded is not None and loaded.notices == ()


def test_a_renamed_checkpoint_is_noticed(two: Path) -> None:
    (two / "step-00000020").rename(two / "step-00000030")
    assert verify(two / "step-00000030") == ["manifest.json is of step 20: the folder was renamed"]
    (two / "step-00000030").rename(two / "a copy elsewhere")
    assert verify(two / "a copy elsewhere") == []


def test_loaded_tensors_do_not_depend_on_the_file(two: Path, make: Any) -> None:
    loaded = load(two)
    assert loaded is not None
    os.truncate(loaded.path / "model.safetensors", 0)
    assert torch.equal(loaded.snapshot.model["norm.bias"], make(20).model["norm.bias"])


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/passwd", "sub/model.safetensors", "extra.bin", ""])
def test_a_manifest_may_name_only_the_files_of_a_checkpoint(name: str, two: Path) -> None:
    folder = two / "step-00000020"
    (two / "outside.txt").write_text("secret")
    files = manifest.read(folder).files | {name: disk.digest(two / "outside.txt")}
    reseal(folder, files=files)
    [problem] = verify(folder)
    assert f"names {name!r}, which no checkpoint holds" in problem


@pytest.mark.parametrize("name", FILES)
def test_links_are_refused(name: str, two: Path) -> None:
    path = two / "step-00000020" / name
    path.rename(two / "outside")
    path.symlink_to(two / "outside")
    problems = verify(path.parent)
    assert problems and name in problems[0]


def test_a_pipe_is_refused_and_not_waited_for(two: Path) -> None:
    path = two / "step-00000020" / "state.json"
    path.unlink()
    os.mkfifo(path)
    assert verify(path.parent) == ["state.json cannot be read: not a regular file"]


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "recipe.yaml"])
def test_text_of_absurd_size_is_refused_unread(name: str, two: Path) -> None:
    folder = two / "step-00000020"
    with (folder / name).open("r+b") as file:
        file.truncate(manifest.LIMIT + 1)
    if name != "manifest.json":
        reseal(folder)
    [problem] = verify(folder)
    assert problem == f"{name} has 16,777,217 bytes, more than the 16,777,216 such a file may have"


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, "9" * 5000, "{", '{"a": 1', "\udcff"])
def test_strange_json_is_refused(text: str, two: Path) -> None:
    folder = two / "step-00000020"
    raw = text.encode("utf-8", "surrogateescape")
    (folder / "state.json").write_bytes(raw)
    reseal(folder)
    [problem] = verify(folder)
    assert problem.startswith("state.json is not ")
    (folder / "manifest.json").write_bytes(raw)
    [problem] = verify(folder)
    assert problem.startswith("manifest.json is damaged")


@pytest.mark.parametrize("change", [
    {"step": "20"}, {"step": True}, {"files": []}, {"files": {}}, {"aliases": None}, {"aliases": {"a": 1}},
    {"files": {"model.safetensors": 5}}, {"extra": 1},
])  # fmt: skip
def test_a_manifest_of_other_types_is_refused(change: dict[str, Any], two: Path) -> None:
    path = two / "step-00000020" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    [problem] = verify(path.parent)
    assert problem.startswith("manifest.json is damaged")


def test_an_unknown_format_is_named(two: Path) -> None:
    path = two / "step-00000020" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 7}))
    loaded = load(two)
    assert loaded is not None
    assert "says format 7 and this version of meristem reads 1" in loaded.notices[0]


def test_ties_that_the_model_does_not_bear_out_are_refused(two: Path) -> None:
    for aliases in ({"head.weight": "nothing"}, {"norm.bias": "embedding.weight"}):
        reseal(two / "step-00000020", aliases=aliases)
        [problem] = verify(two / "step-00000020")
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
    made = {f"protocol {protocol}": pickle.dumps(Bomb(target), protocol=protocol) for protocol in range(6)}
    for name, zipped in (("torch.save", True), ("torch.save of old", False)):
        path = target.with_name("made.pt")
        torch.save({"w": Bomb(target)}, path, _use_new_zipfile_serialization=zipped)
        made[name] = path.read_bytes()
        path.unlink()
    return made


def test_the_bombs_are_live(tmp_path: Path) -> None:
    pickle.loads(bombs(tmp_path / "boom")["protocol 4"])
    assert (tmp_path / "boom").is_dir()
    with pytest.raises(AssertionError):
        nothing_executed(lambda: pickle.loads(bombs(tmp_path / "boom2")["protocol 4"]))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_pickle_named_safetensors_is_refused_and_nothing_executes(
    sealed: bool, two: Path, tmp_path: Path, make: Any, same: Any
) -> None:
    folder = two / "step-00000020"
    for kind, content in bombs(tmp_path / "boom").items():
        (folder / "model.safetensors").write_bytes(content)
        if sealed:
            reseal(folder)
        nothing_executed(lambda: load(two))
        loaded = load(two)
        assert loaded is not None and same(loaded.snapshot, make(10))
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
        load(tmp_path / "c")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "model.pt").write_bytes(content["protocol 2"])
    with pytest.raises(MeristemError, match=r"model\.pt is a pickle"):
        load(tmp_path / "bare")
    with pytest.raises(MeristemError, match="the file is a pickle"):
        load(tmp_path / "bare" / "model.pt")
    assert not (tmp_path / "boom").exists()


def test_a_safetensors_file_that_begins_like_a_pickle_is_not_taken_for_one(tmp_path: Path, make: Any) -> None:
    folder = save(tmp_path / "c", make(10))
    header = b'{"__metadata__":{"pad":"' + b"x" * (640 - 27) + b'"}}'
    (folder / "memory.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert (folder / "memory.safetensors").read_bytes()[:2] == b"\x80\x02"
    assert "has changed" in verify(folder)[0] or "instead of" in verify(folder)[0]
    reseal(folder)
    assert verify(folder) == []


def test_a_hostile_header_is_refused(two: Path) -> None:
    folder = two / "step-00000020"
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    headers = [b"", b"{", b"[]", json.dumps({"w": tensor | {"data_offsets": [0, 1 << 60]}}).encode(),
               json.dumps({"w": tensor | {"shape": [1 << 40, 1 << 40]}}).encode(),
               json.dumps({"w": tensor, "v": tensor}).encode()]
    for header in headers:
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
        reseal(folder)
        assert "model.safetensors is no safetensors file" in verify(folder)[0]
    (folder / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    reseal(folder)
    assert "model.safetensors is no safetensors file" in verify(folder)[0]


def test_reading_while_another_process_saves(tmp_path: Path, make: Any, same: Any) -> None:
    snapshots = [replace(make(step), tokenizer=None) for step in range(30)]
    save(tmp_path / "c", snapshots[0], keep=1)
    child = os.fork()
    if child == 0:
        for snapshot in snapshots[1:]:
            save(tmp_path / "c", snapshot, keep=1)
        os._exit(0)
    seen = []
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        loaded = load(tmp_path / "c")
        assert loaded is not None and same(loaded.snapshot, snapshots[loaded.snapshot.step])
        assert not any("damaged" in notice for notice in loaded.notices)
        seen.append(loaded.snapshot.step)
    assert len(set(seen)) > 3 and seen == sorted(seen)
