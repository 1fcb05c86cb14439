"""Texts that lie: JSON and YAML without end, recipes, configurations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile.artifact_files import BOMB, STEP, Artifact, Good, file, large, published, reseal, run
from hostile.sandboxed_trial import PLANTED

RECIPE = ("read_recipe", "describe_recipe")
PUBLISHED = ("import_published", "begin_from_published")
WORDS = ("load_tokenizer",)


def texts() -> Iterator[Artifact]:
    """All of them."""
    yield from _json()
    yield from _yaml()
    yield from _configs()
    yield from _elmos()


# ---------------------------------------------------------------- JSON

JSON: dict[str, bytes | Callable[[Path], object]] = {
    "of depth 100,000": b'{"model":' * 100_000,
    "of depth 200": b'{"model":' * 200 + b"1" + b"}" * 200,
    "of 200 MB of digits": lambda path: large(path, b'{"model": ', b"9", 200 << 20, b"}"),
    "of 5,000 digits": b'{"model": %b}' % (b"9" * 5000),
    "of a million empty lists": b'{"model": [' + b"[]," * 5_000_000 + b"[]]}",
    "of a million empty objects": b'{"model": [' + b"{}," * 1_000_000 + b"{}]}",
    "with a key twice": b'{"model_type": "bert", "model": {}, "model_type": "gpt2"}',
    "with NaN": b'{"model": NaN}',
    "with Infinity": b'{"model": -Infinity}',
    "with a number beyond all numbers": b'{"model": 1e999}',
    "with invalid UTF-8": b'{"model": "\xff\xfe"}',
    "with half a character": b'{"model": "\\ud800"}',
    "in UTF-16": '{"model": 1}'.encode("utf-16"),
    "that is a list": b"[1, 2]",
    "that is cut off": b'{"model": {"type"',
    "without a byte": b"",
}


def _json() -> Iterator[Artifact]:
    for kind, content in JSON.items():
        yield Artifact(
            name=f"config.json {kind}", make=_config(content), entry_points=PUBLISHED[:1], message="config.json"
        )
        yield Artifact(name=f"tokenizer.json {kind}", make=file("tokenizer.json", content), entry_points=WORDS,
                       message="tokenizer.json")  # fmt: skip
    for kind in ("of depth 100,000", "with invalid UTF-8", "that is a list", "without a byte"):
        for name in ("state.json", "manifest.json"):
            yield Artifact(
                name=f"{name} {kind}", make=_in_run(name, JSON[kind]), entry_points=("load_run",), message=name
            )


def _config(content: bytes | Callable[[Path], object]) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        model_folder = published(folder, good)
        content(model_folder / "config.json") if callable(content) else (model_folder / "config.json").write_bytes(
            content
        )
        return model_folder

    return make


def _in_run(name: str, content: Any) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        run_folder = run(folder, good)
        (run_folder / STEP / name).write_bytes(content)
        if name != "manifest.json":
            reseal(run_folder / STEP)
        return run_folder

    return make


# ---------------------------------------------------------------- YAML

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghij", "bcdefghijk", strict=True)
)
BASE = "model: {family: bert}\nobjective: mlm\n"
YAML: dict[str, bytes | Callable[[Path], object]] = {
    "that makes an object": b"model: !!python/object/apply:os.system ['mkdir planted']\n",
    "that makes an object anew": b"model: !!python/object/new:os.system ['mkdir planted']\n",
    "that imports a module": b"model: !!python/module:planted\n",
    "that names a function": b"model: !!python/name:os.system\n",
    "of a billion laughs": LAUGHS.encode(),
    "of depth 10,000 in brackets": b"a: " + b"[" * 10_000,
    "of depth 10,000 in dashes": b"- " * 10_000,
    "of depth 10,000 in braces": b"{a: " * 10_000,
    "that merges itself": b"model: &m\n  family: bert\n  <<: *m\n",
    "that holds itself": b"model: &m [*m]\n",
    "of one scalar of 50 MB": lambda path: large(path, b"model: ", b"x", 50 << 20),
    "of a million lines": b"- a\n" * 1_000_000,
    "with a key twice": f"{BASE}train: {{rate: 1, rate: 2}}\n".encode(),
    "with tabs": b"model:\n\tfamily: bert\n",
    "of two documents": b"a: 1\n---\nb: 2\n",
    "with a number of 5,000 digits": b"train: {steps: %b}\n" % (b"9" * 5000),
    "with a date that is none": b"train: {steps: 2001-99-99}\n",
    "that is a list": b"- 1\n",
    "of invalid UTF-8": b"a: \xff\xfe\n",
    "of null bytes": b"\0" * 100,
}
RECIPES = {
    "with a width of 10 to the 12": ("model: {family: bert, hidden_size: 1000000000000}\nobjective: mlm\n", "model"),
    "with 10 to the 9 layers": ("model: {family: bert, layers: 1000000000}\nobjective: mlm\n", "model.layers"),
    "with a vocabulary of 10 to the 12": (f"{BASE}tokenizer: {{size: 1000000000000}}\n", "tokenizer.vocab_size"),
    "with room for 10 to the 12 words": (f"{BASE}tokenizer: {{room: 1000000000000}}\n", "tokenizer.padded_vocab_size"),
    "with a batch of 10 to the 12": (f"{BASE}train: {{batch_tokens: 1000000000000}}\n", "train.batch_tokens"),
    "with shards of 10 to the 18": (f"{BASE}dataset: {{shard_tokens: 1000000000000000000}}\n", "dataset.shard_tokens"),
    "with 10 to the 9 workers": (f"{BASE}train: {{workers: 1000000000}}\n", "train.dataloader_workers"),
    "with a head of 10 to the 12": (f"{BASE}heads: {{x: {{kind: a, sizes: {{b: 1000000000000}}}}}}\n", "heads.x"),
    "with a filter of 10 to the 12": (
        "model: {family: elmo, char_filters: [[1, 1000000000000]]}\nobjective: bilm\n",
        "model",
    ),
    "with a rate that is no number": (f"{BASE}train: {{rate: .nan}}\n", "train.learning_rate"),
    "with an infinite rate": (f"{BASE}train: {{rate: .inf}}\n", "train.learning_rate"),
    "with a family of another module": ("model: {family: ../../planted}\nobjective: mlm\n", "model.family"),
    "with a family by a dotted name": ("model: {family: os.system}\nobjective: mlm\n", "model.family"),
    "with a hidden objective": ("model: {family: bert}\nobjective: __init__\n", "objective"),
    "with a width that heads do not divide": (
        "model: {family: bert, hidden_size: 65, heads: 2}\nobjective: mlm\n",
        "heads",
    ),
}


def _yaml() -> Iterator[Artifact]:
    for kind, content in YAML.items():
        yield Artifact(name=f"a recipe {kind}", make=file("bad.yaml", content), entry_points=RECIPE, message="bad.yaml")
    for kind, (text, message) in RECIPES.items():
        yield Artifact(
            name=f"a recipe {kind}", make=file("bad.yaml", text.encode()), entry_points=RECIPE, message=message
        )
    yield Artifact(name="a run whose recipe asks for a model of 10 TB", make=_huge_run, entry_points=("load_run",),
                   message="parameters take")  # fmt: skip


def _huge_run(folder: Path, good: Good) -> Path:
    run_folder = run(folder, good)
    text = (run_folder / "recipe.yaml").read_text().replace("hidden_size: 16", "hidden_size: 1048576")
    (run_folder / "recipe.yaml").write_text(text.replace("ffn_size: 32", "ffn_size: 4194304"))
    return run_folder


# ---------------------------------------------------------------- config.json

CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "that maps to code": ({"auto_map": {"AutoModel": f"{PLANTED}.Model"}}, "needs custom code"),
    "that brings a pipeline": ({"custom_pipelines": {"x": {"impl": f"{PLANTED}.Pipe"}}}, "needs custom code"),
    "of a type that is a path": ({"model_type": "../bert"}, "model_type"),
    "of a type that is a module": ({"model_type": PLANTED}, "model_type"),
    "of an unknown class": ({"architectures": ["os.system"]}, "config.json"),
    "with 10 to the 9 layers": ({"num_hidden_layers": 10**9}, "config.json"),
    "with 10 to the 12 words": ({"vocab_size": 10**12}, "config.json"),
    "with a width of 10 to the 12": ({"hidden_size": 10**12}, "config.json"),
    "with a width that heads do not divide": ({"hidden_size": 7}, "config.json"),
    "with a list as width": ({"hidden_size": [8]}, "config.json"),
    "with 10 to the 9 labels": (
        {"num_labels": 10**9, "architectures": ["BertForSequenceClassification"]},
        "num_labels",
    ),
    "with labels that are no numbers": ({"id2label": {"../x": "a"}}, "id2label"),
}


def _configs() -> Iterator[Artifact]:
    for kind, (changes, message) in CONFIGS.items():
        yield Artifact(name=f"a config {kind}", make=_told(changes), entry_points=PUBLISHED[:1], message=message)
    yield Artifact(name="a tokenizer_config that maps to code", make=_told({}, {"auto_map": {"A": f"{PLANTED}.T"}}),
                   entry_points=PUBLISHED, message="tokenizer_config.json")  # fmt: skip


ELMO = {
    "lstm": {"projection_dim": 16, "dim": 32, "n_layers": 2, "cell_clip": 3, "proj_clip": 3},
    "char_cnn": {"filters": [[1, 4], [2, 4]], "n_highway": 1, "embedding": {"dim": 4}, "n_characters": 262},
}


def _elmos() -> Iterator[Artifact]:
    yield Artifact(name="a pickle as ELMo's weights", make=_elmo({}), entry_points=PUBLISHED, message="weights.hdf5")
    for kind, lstm in {"10 to the 9 layers": {"n_layers": 10**9}, "10 to the 12 cells": {"dim": 10**12}}.items():
        make = _elmo({"lstm": {**ELMO["lstm"], **lstm}})
        yield Artifact(name=f"an ELMo of {kind}", make=make, entry_points=PUBLISHED, message="options.json")


def _elmo(changes: dict[str, Any]) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        (folder / "options.json").write_text(json.dumps({**ELMO, **changes}))
        (folder / "weights.hdf5").write_bytes(BOMB)
        return folder

    return make


def _told(changes: dict[str, Any], words: dict[str, Any] | None = None) -> Callable[[Path, Good], Path]:
    def make(folder: Path, good: Good) -> Path:
        model_folder = published(folder, good)
        config = json.loads((model_folder / "config.json").read_text())
        (model_folder / "config.json").write_text(json.dumps({**config, **changes}))
        (model_folder / f"{PLANTED}.py").write_text("raise SystemExit('it ran')")
        if words:
            (model_folder / "tokenizer_config.json").write_text(json.dumps(words))
        return model_folder

    return make
