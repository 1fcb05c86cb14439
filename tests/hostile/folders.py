"""Folders that lie: runs whose links lead elsewhere, stores with absurd counts, things that are no files."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.artifact_files import BOMB, PASSED, STEP, Artifact, Good, reseal, run, store

from meristem.checkpoint import disk, manifest
from meristem.dataset.manifest import DatasetManifest

RUN = ("load_run", "fill_with_run", "begin_from_run")
STORE = ("open_store",)


def folders() -> Iterator[Artifact]:
    """All of them."""
    yield from _pointers()
    yield from _links()
    yield from _manifests()
    yield from _stores()
    yield from _no_files()


# ---------------------------------------------------------------- runs


def _changed(change: Callable[[Path], object]) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        run_folder = run(folder, good)
        change(run_folder)
        return run_folder

    return make


def _pointers() -> Iterator[Artifact]:
    for kind, content in {
        "leads out of the run": b"../../..",
        "is a whole path": b"/etc",
        "holds a line break": b"step-00000002\n../..",
        "is a megabyte long": b"step-00000002" * 80_000,
        "is a pickle": BOMB,
        "names a step that is gone": b"step-99999999",
    }.items():
        yield Artifact(name=f"`latest` that {kind}", make=_changed(_writes("checkpoints/latest", content)),
                       entry_points=("load_run",), message="latest", outcome=PASSED)  # fmt: skip
    yield Artifact(name="`latest` that is a link", make=_changed(_links_to("checkpoints/latest", "/etc/passwd")),
                   entry_points=("load_run",), message="latest", outcome=PASSED)  # fmt: skip
    names = {"leads up": "..", "leads far up": "../../..", "is a whole path": "/", "is long": "x" * 9999}
    for kind, name in names.items():
        yield Artifact(
            name=f"`best` of several runs that {kind}",
            make=_several(name),
            entry_points=RUN[:2],
            message="is not a run",
        )


def _writes(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda run_folder: (run_folder / name).write_bytes(content)


def _links_to(name: str, target: str) -> Callable[[Path], object]:
    def change(run_folder: Path) -> None:
        if not (run_folder / name).is_dir():
            (run_folder / name).unlink(missing_ok=True)
        (run_folder / name).symlink_to(target)

    return change


def _several(name: str) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        run(folder, good)
        (folder / "run" / "tries").mkdir()
        (folder / "run" / "tries" / "best").write_text(name)
        shutil.move(folder / "run" / "tries", folder / "tries")
        return folder / "tries"

    return make


def _links() -> Iterator[Artifact]:
    for name in ("recipe.yaml", "tokenizer.json", "metrics.jsonl", "log.txt", ".lock", "data.json", "finished.json"):
        yield Artifact(name=f"a run whose {name} is a link out of it", make=_changed(_moves_out(name)),
                       entry_points=("load_run", "resume_run", "begin_from_run"), message=name)  # fmt: skip
    yield Artifact(
        name="a checkpoint that is a link", make=_changed(_moves_out(str(STEP))), entry_points=RUN, message=STEP.name
    )
    for name in ("model.safetensors", "tokenizer.json", "manifest.json"):
        yield Artifact(name=f"a checkpoint whose {name} is a link", make=_changed(_moves_out(str(STEP / name))),
                       entry_points=RUN[:1], message=name)  # fmt: skip
    yield Artifact(
        name="a run whose recipe is a loop of links", make=_changed(_loop), entry_points=RUN[:1], message="is not a run"
    )
    for kind, key in {"leads up": "../../x", "is a whole path": "/etc", "is a number": 7}.items():
        yield Artifact(name=f"data.json whose key {kind}",
                       make=_changed(_writes("data.json", json.dumps({"main": key}).encode())),
                       entry_points=("resume_run",), message="data.json")  # fmt: skip
    yield Artifact(name="data.json of depth 100,000", make=_changed(_writes("data.json", b'{"a":' * 100_000)),
                   entry_points=("resume_run",), message="data.json")  # fmt: skip
    for kind, state in {
        "a text as its step": {"step": "x"},
        "a list as its window": {"window": {"loss": [1]}},
    }.items():
        yield Artifact(name=f"state.json with {kind}", make=_changed(_state(state)), entry_points=("resume_run",),
                       message="state.json")  # fmt: skip


def _moves_out(name: str) -> Callable[[Path], object]:
    def change(run_folder: Path) -> None:
        outside = run_folder.parent / "outside"
        if (run_folder / name).exists():
            (run_folder / name).rename(outside)
        else:
            outside.write_text("precious\n")
        (run_folder / name).symlink_to(outside)

    return change


def _loop(run_folder: Path) -> None:
    (run_folder / "recipe.yaml").unlink()
    (run_folder / "recipe.yaml").symlink_to("other.yaml")
    (run_folder / "other.yaml").symlink_to("recipe.yaml")


def _state(changes: dict[str, Any]) -> Callable[[Path], object]:
    def change(run_folder: Path) -> None:
        path = run_folder / STEP / "state.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        reseal(run_folder / STEP)

    return change


def _manifests() -> Iterator[Artifact]:
    for kind, name in {"above it": "../../../x", "by its whole path": "/etc/passwd", "of its own": "extra.bin"}.items():
        yield Artifact(name=f"a checkpoint that names a file {kind}", make=_changed(_names(name)), entry_points=RUN[:1],
                       message="manifest.json")  # fmt: skip
    for kind, change in {
        "a step of text": {"step": "2"},
        "no files": {"files": {}},
        "sizes below zero": {"files": {"model.safetensors": {"size": -1, "sha256": "0" * 64}}},
    }.items():
        yield Artifact(name=f"a checkpoint's manifest with {kind}", make=_changed(_manifest(change)),
                       entry_points=RUN[:1],
                       message="manifest.json")  # fmt: skip
    yield Artifact(name="a checkpoint that grew to a terabyte", make=_changed(_terabyte), entry_points=RUN[:1],
                   message="model.safetensors")  # fmt: skip


def _names(name: str) -> Callable[[Path], object]:
    def change(run_folder: Path) -> None:
        files = manifest.read_manifest(run_folder / STEP).files
        reseal(run_folder / STEP, files={**files, name: disk.digest(run_folder / STEP / "state.json")})

    return change


def _manifest(changes: dict[str, Any]) -> Callable[[Path], object]:
    def change(run_folder: Path) -> None:
        path = run_folder / STEP / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def _terabyte(run_folder: Path) -> None:
    with (run_folder / STEP / "model.safetensors").open("r+b") as file:
        file.truncate(1 << 40)


# ---------------------------------------------------------------- stores


def _stores() -> Iterator[Artifact]:
    for kind, changes in {
        "10 to the 18 tokens": {"tokens": 10**18},
        "fewer tokens than none": {"tokens": -5},
        "10 to the 18 documents": {"documents": 10**18},
        "a file above the folder": {"files": {"../../x": {"size": 1, "sha256": "0" * 64}}},
        "a file by its whole path": {"files": {"/etc/passwd": {"size": 1, "sha256": "0" * 64}}},
        "files of other sizes": {"files": {"00000.tokens": {"size": 10**15, "sha256": "0" * 64}}},
        "no files": {"files": {}},
    }.items():
        yield Artifact(name=f"a store with {kind}", make=_store(_shard(changes)), entry_points=STORE, message="store/")
    for kind, changes in {
        "a split above the folder": {"splits": {"../..": []}},
        "tokens that are objects": {"dtype": "O"},
        "another format": {"format": 99},
        "a list of splits": {"splits": []},
    }.items():
        yield Artifact(
            name=f"a store with {kind}", make=_store(_described(changes)), entry_points=STORE, message="dataset.json"
        )
    yield Artifact(name="a store with documents at negative places", make=_store(_negative), entry_points=STORE,
                   message="00000.documents")  # fmt: skip
    yield Artifact(
        name="a store with shards of pickles", make=_store(_pickled), entry_points=STORE, message="00000.tokens"
    )
    for kind, content in {"of depth 100,000": b"[" * 100_000, "of a pickle": BOMB, "of nothing": b""}.items():
        yield Artifact(name=f"dataset.json {kind}", make=_store(_writes("dataset.json", content)), entry_points=STORE,
                       message="dataset.json")  # fmt: skip


def _store(change: Callable[[Path], object]) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        dataset_folder = store(folder, good)
        change(dataset_folder)
        return dataset_folder

    return make


def _described(changes: dict[str, Any]) -> Callable[[Path], object]:
    """With a checksum that agrees."""

    def change(dataset_folder: Path) -> None:
        old = DatasetManifest.load(dataset_folder / "dataset.json")
        (dataset_folder / "dataset.json").write_text(old.model_copy(update=changes).to_json() if isinstance(
            changes.get("splits", {}), dict) else json.dumps({"dataset": {**old.model_dump(), **changes}}))  # fmt: skip

    return change


def _shard(changes: dict[str, Any]) -> Callable[[Path], object]:
    def change(dataset_folder: Path) -> None:
        splits = json.loads((dataset_folder / "dataset.json").read_text())["store"]["splits"]
        splits["train"][0].update(changes)
        record = DatasetManifest.load(dataset_folder / "dataset.json").model_dump() | {"splits": splits}
        (dataset_folder / "dataset.json").write_text(DatasetManifest.model_validate(record).to_json())

    return change


def _sealed(dataset_folder: Path, name: str, content: bytes) -> None:
    """A file of a shard with another content, which the description agrees with."""
    (dataset_folder / "train" / name).write_bytes(content)
    digest = disk.digest(dataset_folder / "train" / name)
    files = DatasetManifest.load(dataset_folder / "dataset.json").model_dump()["splits"]["train"][0]["files"]
    _shard({"files": {**files, name: {"size": digest.size, "sha256": digest.sha256}}})(dataset_folder)


def _negative(dataset_folder: Path) -> None:
    document_starts = np.fromfile(dataset_folder / "train" / "00000.documents", "<i8")
    document_starts[1] = -5
    _sealed(dataset_folder, "00000.documents", document_starts.tobytes())


def _pickled(dataset_folder: Path) -> None:
    _sealed(dataset_folder, "00000.tokens", BOMB)


# ---------------------------------------------------------------- no files at all


def _no_files() -> Iterator[Artifact]:
    entry_points_by_file: dict[str, tuple[str, ...]] = {
        "recipe.yaml": ("read_recipe",),
        "tokenizer.json": ("load_tokenizer",),
        "text.txt": ("read_corpus",),
        "table.csv": ("read_labelled_text",),
        "picture.png": ("look_at_picture",),
        "vectors.txt": ("read_word_vectors",),
        "pairs.jsonl": ("read_minimal_pairs",),
    }
    for kind, make in {"a pipe": os.mkfifo, "a device": _device, "a socket": _socket, "a folder": Path.mkdir}.items():
        for name, entry_points in entry_points_by_file.items():
            if (kind, name) not in (("a folder", "text.txt"), ("a folder", "pairs.jsonl"), ("a folder", "table.csv")):
                yield Artifact(name=f"{kind} as {name}", make=_odd(make, name), entry_points=entry_points, message=name)
    for name in ("state.json", "model.safetensors", "manifest.json"):
        yield Artifact(
            name=f"a pipe as a checkpoint's {name}", make=_changed(_piped(name)), entry_points=RUN[:1], message=name
        )


def _odd(make: Callable[[Path], object], name: str) -> Callable[[Path, Good], Path]:
    def make_artifact(folder: Path, good: Good) -> Path:
        make(folder / name)
        return folder / name

    return make_artifact


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    working_folder = Path.cwd()
    os.chdir(path.parent)  # the address of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(path.name)
    finally:
        os.chdir(working_folder)


def _piped(name: str) -> Callable[[Path], object]:
    def change(run_folder: Path) -> None:
        (run_folder / STEP / name).unlink()
        os.mkfifo(run_folder / STEP / name)

    return change
