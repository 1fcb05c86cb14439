"""Weights that lie: pickles in disguise, safetensors headers, indices of shards."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile.artifact_files import (
    BOMB,
    REFUSED,
    STEP,
    TENSOR,
    Artifact,
    Bomb,
    Good,
    file,
    large,
    published,
    reseal,
    run,
    safetensors,
)

PUBLISHED = ("import_published", "begin_from_published")
RUN = ("load_run", "resume_run")


def weights() -> Iterator[Artifact]:
    """All of them."""
    yield from _pickles()
    yield from _headers()
    yield from _indices()


# ---------------------------------------------------------------- pickles


def _torch(**save_options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(2), "bomb": Bomb()}, buffer, **save_options)
    return buffer.getvalue()


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", BOMB)
    return buffer.getvalue()


def _array(save: Callable[..., None]) -> bytes:
    buffer = io.BytesIO()
    save(buffer, np.array([Bomb()], object), allow_pickle=True) if save is np.save else save(
        buffer, w=np.array([Bomb()])
    )
    return buffer.getvalue()


PICKLES: dict[str, Callable[[], bytes]] = {
    "a pickle": lambda: BOMB,
    "a pickle of protocol 0": lambda: pickle.dumps(Bomb(), protocol=0),
    "a pickle of protocol 2": lambda: pickle.dumps(Bomb(), protocol=2),
    "what torch.save writes": _torch,
    "what torch.save wrote in old days": lambda: _torch(_use_new_zipfile_serialization=False),
    "a zip with data.pkl": _zip,
    "a gzipped pickle": lambda: gzip.compress(BOMB),
    "an array of objects": lambda: _array(np.save),
    "an archive of arrays of objects": lambda: _array(np.savez),
}


def _pickles() -> Iterator[Artifact]:
    for kind, content in PICKLES.items():
        yield Artifact(name=f"{kind} named model.safetensors", make=_in_published("model.safetensors", content),
                       entry_points=PUBLISHED, message="model.safetensors")  # fmt: skip
    for kind in ("a pickle", "what torch.save writes", "what torch.save wrote in old days", "a zip with data.pkl"):
        yield Artifact(name=f"{kind} named pytorch_model.bin", make=_only_bin(PICKLES[kind]), entry_points=PUBLISHED,
                       message="pytorch_model.bin")  # fmt: skip
    yield Artifact(
        name="model.pt and model.ckpt alone", make=_unknown_names, entry_points=PUBLISHED, message="has no weights"
    )
    for name in ("model.safetensors", "optimizer.safetensors", "state.json", "recipe.yaml"):
        # only resuming reads the optimizer
        entry_points = ("resume_run",) if name == "optimizer.safetensors" else RUN
        yield Artifact(
            name=f"a pickle as a checkpoint's {name}",
            make=_in_run(name, lambda: BOMB),
            entry_points=entry_points,
            message=name,
        )
    yield Artifact(
        name="model.pt among the checkpoints", make=_loose_pickle, entry_points=RUN[:1], message="model.pt is a pickle"
    )
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        yield Artifact(name=f"a pickle as {name}", make=_words(name), entry_points=("load_tokenizer",), message=name)
    for name in ("vectors.bin", "vectors.txt"):
        yield Artifact(
            name=f"a pickle as {name}", make=file(name, BOMB), entry_points=("read_word_vectors",), message=name
        )
    for name in ("text.txt", "text.jsonl", "text.parquet", "text.csv"):
        yield Artifact(name=f"a pickle as {name}", make=file(name, BOMB), entry_points=("read_corpus",), message=name)


def _words(name: str) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        (folder / name).write_bytes(BOMB)
        (folder / "merges.txt").write_text("")
        return folder

    return make


def _in_published(name: str, content: Callable[[], bytes]) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        model_folder = published(folder, good)
        (model_folder / name).write_bytes(content())
        return model_folder

    return make


def _only_bin(content: Callable[[], bytes]) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        model_folder = _in_published("pytorch_model.bin", content)(folder, good)
        (model_folder / "model.safetensors").unlink()
        return model_folder

    return make


def _unknown_names(folder: Path, good: Good) -> Path:
    model_folder = published(folder, good)
    (model_folder / "model.safetensors").unlink()
    for name in ("model.pt", "model.ckpt", "weights.pkl", "model.joblib"):
        (model_folder / name).write_bytes(BOMB)
    return model_folder


def _in_run(name: str, content: Callable[[], bytes]) -> Callable[[Path, Good], Path]:
    """In the run's only checkpoint, whose manifest is made to agree with it."""

    def make(folder: Path, good: Good) -> Path:
        run_folder = run(folder, good)
        (run_folder / STEP / name).write_bytes(content())
        reseal(run_folder / STEP)
        return run_folder

    return make


def _loose_pickle(folder: Path, good: Good) -> Path:
    run_folder = run(folder, good)
    for part in (run_folder / STEP).iterdir():
        part.unlink()
    (run_folder / STEP).rmdir()
    (run_folder / "checkpoints" / "model.pt").write_bytes(BOMB)
    return run_folder


# ---------------------------------------------------------------- headers

OTHER = TENSOR | {"data_offsets": [8, 16]}
HEADERS: dict[str, Callable[[], bytes]] = {
    "longer than the file": lambda: (1 << 20).to_bytes(8, "little") + b'{"w":',
    "of 2 to the 63": lambda: (1 << 63).to_bytes(8, "little") + b"{}",
    "of no bytes": lambda: safetensors(b""),
    "with overlapping tensors": lambda: safetensors({"w": TENSOR, "v": TENSOR}),
    "with a hole": lambda: safetensors({"w": TENSOR, "v": TENSOR | {"data_offsets": [12, 20]}}, b"\0" * 20),
    "with reversed offsets": lambda: safetensors({"w": TENSOR | {"data_offsets": [8, 0]}}),
    "with negative offsets": lambda: safetensors({"w": TENSOR | {"data_offsets": [-8, 0]}}),
    "with an unknown type": lambda: safetensors({"w": TENSOR | {"dtype": "OBJECT"}}),
    "with a shape that overflows": lambda: safetensors({"w": TENSOR | {"shape": [1 << 40, 1 << 40]}}),
    "with a shape of other size": lambda: safetensors({"w": TENSOR | {"shape": [3]}}),
    "with negative sizes": lambda: safetensors({"w": TENSOR | {"shape": [-1, -2]}}),
    "with one name twice": lambda: safetensors(b'{"w":%b,"w":%b}' % ((json.dumps(TENSOR).encode(),) * 2)),
    "that is not JSON": lambda: safetensors(b"{w: 1}  "),
    "that is a list": lambda: safetensors([TENSOR]),
    "of depth 100,000": lambda: safetensors(b'{"w":' * 100_000),
    "with NaN in numbers": lambda: safetensors(b'{"w":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}'),
    "before bytes that belong to nothing": lambda: safetensors({"w": TENSOR}, b"\0" * 64),
    "before too few bytes": lambda: safetensors({"w": TENSOR}, b"\0" * 4),
    "of invalid UTF-8": lambda: safetensors(b'{"\xff\xfe": 1}'),
    "of a file without a byte": lambda: b"",
    "of a file of zeros": lambda: b"\0" * 4096,
}


def _headers() -> Iterator[Artifact]:
    for kind, content in HEADERS.items():
        name = f"a safetensors header {kind}"
        yield Artifact(name=name, make=_in_published("model.safetensors", content), entry_points=PUBLISHED[:1],
                       message="model.safetensors")  # fmt: skip
        yield Artifact(name=f"{name} in a checkpoint", make=_in_run("model.safetensors", content), entry_points=RUN[:1],
                       message="model.safetensors")  # fmt: skip
    for name, make in (
        ("a safetensors header of 100 MB of spaces", _spaces),
        ("a safetensors header of a million tensors", _million),
        ("a safetensors file cut in half", _half),
    ):
        yield Artifact(name=name, make=make, entry_points=PUBLISHED, message="model.safetensors")


def _spaces(folder: Path, good: Good) -> Path:
    model_folder = published(folder, good)
    large(model_folder / "model.safetensors", (100 << 20).to_bytes(8, "little"), b" ", 100 << 20, b"{}")
    return model_folder


def _million(folder: Path, good: Good) -> Path:
    model_folder = published(folder, good)
    header_entry = b'"%07d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
    header = b"{" + b"".join(header_entry % number for number in range(200_000)).rstrip(b",") + b"}"
    (model_folder / "model.safetensors").write_bytes(safetensors(header, b""))
    return model_folder


def _half(folder: Path, good: Good) -> Path:
    model_folder = published(folder, good)
    content = (model_folder / "model.safetensors").read_bytes()
    (model_folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    return model_folder


# ---------------------------------------------------------------- indices


def _indices() -> Iterator[Artifact]:
    index = "model.safetensors.index.json"
    weight_maps: dict[str, Any] = {
        "a shard above the folder": {"w": "../secret.safetensors"},
        "a shard by its whole path": {"w": "/etc/passwd"},
        "a shard of a null byte": {"w": "a\0.safetensors"},
        "a shard that is the index itself": {"w": index},
        "a shard that is missing": {"w": "gone.safetensors"},
        "a shard that is a pickle": {"w": "model.pkl"},
        "a number as a shard": {"w": 7},
        "nothing": {},
    }
    for kind, weight_map in weight_maps.items():
        yield Artifact(name=f"an index that names {kind}", make=_index({"weight_map": weight_map}),
                       entry_points=PUBLISHED[:1],
                       message=index)  # fmt: skip
    yield Artifact(
        name="an index without a map", make=_index({"weight_map": [1]}), entry_points=PUBLISHED, message=index
    )
    for kind, target in {
        "out of the folder": "../secret.safetensors",
        "to /etc/passwd": "/etc/passwd",
        "to a device": "/dev/zero",
        "to itself": "model.safetensors",
    }.items():
        yield Artifact(name=f"weights that are a link {kind}", make=_link("model.safetensors", target),
                       entry_points=PUBLISHED, message="model.safetensors", outcome=REFUSED)  # fmt: skip
    yield Artifact(name="a vocabulary that is a link to /etc/passwd", make=_link("vocab.txt", "/etc/passwd"),
                   entry_points=PUBLISHED, message="vocab.txt")  # fmt: skip


def _index(content: Any) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        model_folder = published(folder, good)
        (model_folder / "model.safetensors").rename(folder / "secret.safetensors")
        (model_folder / "model.safetensors.index.json").write_text(json.dumps(content))
        return model_folder

    return make


def _link(name: str, target: str) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        model_folder = published(folder, good)
        (model_folder / name).rename(folder / "secret.safetensors")
        (model_folder / name).symlink_to(target)
        return model_folder

    return make
