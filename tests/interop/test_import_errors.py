"""Invalid folders: each gets a clear error, nothing in it is executed, and no partial run remains."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import meristem
from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.interop import import_weights
from meristem.interop.import_weights import import_folder

ROWS = 40
CONFIG = {
    "vocab_size": ROWS,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that imports."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    transformers.BertForMaskedLM(transformers.BertConfig(**CONFIG)).save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in [*special, *"abcdefgh"]))
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    out = tmp_path / "theirs"
    out.mkdir()
    for file in good.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    return out


@pytest.fixture
def assert_refused(folder: Path, tmp_path: Path) -> Callable[[str], None]:
    """Refused with these words, and nothing is left where the run would have been."""

    def check(message: str) -> None:
        with pytest.raises(MeristemError, match=message):
            import_folder(folder, tmp_path / "runs" / "x")
        assert [path.name for path in tmp_path.rglob("*") if folder not in path.parents] in (
            ["theirs"],
            ["theirs", "runs"],
        )

    return check


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = load_file(folder / "model.safetensors")
    change(file)
    save_file(file, folder / "model.safetensors", {"format": "pt"})


WORD = "bert.embeddings.word_embeddings.weight"
OUTPUT = "cls.predictions.decoder.weight"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def test_the_folder_itself_is_good(folder: Path, tmp_path: Path) -> None:
    imported = import_folder(folder, tmp_path / "runs" / "x")
    assert imported.run == tmp_path / "runs" / "x"
    assert meristem.load(imported.run).fill("a [MASK] c")
    assert [path.name for path in imported.run.parent.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(QUERY), r"layer\.1\.attention\.self\.query\.weight is missing"),
        (
            lambda tensors: tensors.update(extra=torch.zeros(3)),
            "has weights that do not belong to its config.json: extra",
        ),
        (
            lambda tensors: tensors.update({"classifier.weight": torch.zeros(2, 8)}),
            "do not belong to its config.json: classifier.weight",
        ),
        (
            lambda tensors: tensors.update({WORD: torch.zeros(ROWS, 9)}),
            "word_embeddings.weight is 40×9, .* not convert to 40×8",
        ),
        (
            lambda tensors: tensors.update({QUERY: torch.zeros(7, 8)}),
            "query.weight is 7×8 and 8×8 and 8×8, .* not convert to 24×8",
        ),
        (
            lambda tensors: tensors.update({QUERY: torch.zeros(8)}),
            "query.weight is 8 and 8×8 and 8×8, which does not convert to 24×8",
        ),
        (
            lambda tensors: tensors.update({WORD: tensors[WORD].long()}),
            "word_embeddings.weight has dtype torch.int64, which is not a weight",
        ),
        (lambda tensors: tensors.update({OUTPUT: torch.ones(ROWS, 8)}), "differ, but in this family they are tied"),
        (lambda tensors: tensors.clear(), "layers of 2 is too large: at most 0 here"),
    ],
)
def test_weights(
    change: Callable[[dict[str, torch.Tensor]], object], message: str, folder: Path, assert_refused: Any
) -> None:
    changed(folder, change)
    assert_refused(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "rwkv"}, "model_type 'rwkv' is not supported; supported: .*bert.*gpt2"),
        ({"model_type": None}, "model_type 'None' is not supported"),
        ({"model_type": "../bert"}, "is not supported"),
        (
            {"architectures": ["BertForEverything"]},
            "config.json: BertForEverything is not supported; supported classes of bert",
        ),
        ({"auto_map": {"AutoModel": "evil.Model"}}, r"config.json: needs custom code .*evil\.Model"),
        ({"custom_pipelines": {"x": {"impl": "evil.Pipe"}}}, "needs custom code"),
        ({"vocab_size": 9}, "the tokenizer has 13 tokens, but the weights only have rows for 9"),
        ({"vocab_size": 41}, "word_embeddings.weight is 40×8, which does not convert to 41×8"),
        ({"num_hidden_layers": 3}, r"layer\.2\.\S+ is missing"),
        ({"num_hidden_layers": 1}, r"do not belong to its config.json: bert\.encoder\.layer\.1"),
        ({"num_hidden_layers": 10**9}, r"config.json: model\.layers: 1,000,000,000 is too large"),
        ({"num_hidden_layers": "deep"}, "layers"),
        ({"hidden_act": "swish9"}, "hidden_act='swish9' is not supported; supported: .*gelu"),
        ({"is_decoder": True}, "is_decoder=True: only False has a counterpart"),
    ],
)
def test_configs(changes: dict[str, Any], message: str, folder: Path, assert_refused: Any) -> None:
    change_config(folder, **changes)
    assert_refused(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no config.json"),
        (b"", "config.json:1: not JSON"),
        (b"{'a': 1}", "config.json:1: not JSON"),
        (b"[" * 200_000, "config.json: not JSON"),
        (b'{"a":' * 100_000, "config.json: not JSON"),
        (b"[]", "config.json: expected a JSON object"),
        (b"\xff\xfe\x00", "config.json: not UTF-8"),
    ],
)
def test_files_that_are_no_config(content: bytes | None, message: str, folder: Path, assert_refused: Any) -> None:
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_bytes(content)
    assert_refused(message)


def test_a_config_of_a_gigabyte_is_not_read(folder: Path, assert_refused: Any) -> None:
    with (folder / "config.json").open("ab") as file:
        file.truncate(1 << 30)
    assert_refused("config.json: 1074 MB is too large")


def test_a_tokenizer_that_wants_code(folder: Path, assert_refused: Any) -> None:
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Words", null]}}')
    assert_refused(r"tokenizer_config\.json: needs custom code .*evil\.Words")


ODD: list[Any] = [None, True, -1, 0, 2.5, 1e308, 10**12, "x", "", [], [1], {}, {"a": [1]}, float("nan")]


@pytest.mark.parametrize("invalid_value", ODD, ids=repr)
def test_no_config_gives_a_traceback(
    invalid_value: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_weights, "write_run", lambda out, *_: RunFolder(out))  # everything but the disk
    config = json.loads((folder / "config.json").read_text())
    keys = [*config, "id2label", "num_labels", "problem_type", "auto_map", "tie_word_embeddings", "vocab_size"]
    num_refused = 0
    for number, key in enumerate(dict.fromkeys(keys)):
        (folder / "config.json").write_text(json.dumps({**config, key: invalid_value}))
        try:
            import_folder(folder, tmp_path / f"run-{number}")
        except MeristemError:
            num_refused += 1
    assert num_refused >= (0 if invalid_value is None else 3)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden.safetensors", "x.pkl", ""]
)
def test_an_index_that_leads_elsewhere(name: str, folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").rename(folder.parent / "theirs" / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {WORD: "part.safetensors", "b": name}})
    )
    assert_refused("is not a file beside it, and nothing else is opened")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {WORD: "gone.safetensors"}}, "gone.safetensors is missing"),
        ({"weight_map": {}}, "has no weight_map, which says which file has which weight"),
        ({"weight_map": [1]}, "has no weight_map, which says which file has which weight"),
        ({}, "has no weight_map, which says which file has which weight"),
    ],
)
def test_an_index_that_is_wrong(index: Any, message: str, folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_refused(message)


def test_two_parts_with_the_same_tensor(folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    save_file({WORD: torch.zeros(ROWS, 8)}, folder / "two.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {WORD: "one.safetensors", "x": "two.safetensors"}})
    )
    assert_refused("word_embeddings.weight is in two.safetensors and in another part")


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        b"\xff" * 64,
        (1 << 62).to_bytes(8, "little") + b"{}",
        header(w={"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}),
        header(w={"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 8]}) + b"\x00" * 8,
        header(w={"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}) + b"\x00" * 8,
        header(w={"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}) + b"\x00" * 8,
    ],
)
def test_a_safetensors_file_that_lies(content: bytes, folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").write_bytes(content)
    assert_refused("is not a safetensors file")


def test_no_weights(folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").unlink()
    assert_refused(r"has no weights \(model.safetensors, its index, or pytorch_model.bin\)")


def test_a_pickle_under_the_name_of_safetensors(folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Planted("true")))
    assert_refused("is a pickle, which can run code: it was not opened")


class Planted:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


class Imports:
    """Imports a module when it is unpickled."""

    def __reduce__(self) -> Any:
        return __import__, ("planted",)


WATCH = """
import sys, torch, torch._weights_only_unpickler, meristem.models.bert, meristem.objectives.mlm
from pathlib import Path
from meristem.interop.import_weights import import_folder
from meristem.config.errors import MeristemError
RUNS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn", "socket.connect"}
seen = []
def hook(event, told):
    planted = event == "import" and told[0] == "planted" or event == "exec" and "theirs" in told[0].co_filename
    if event in RUNS or planted:
        seen.append(event)
sys.addaudithook(hook)
for folder in map(Path, sys.argv[1:]):
    try:
        import_folder(folder, folder.parent / f"run-{folder.name}")
    except MeristemError as error:
        print(folder.name, error, seen)
"""


def test_a_pickle_runs_nothing(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    files: dict[str, Any] = {
        "plain": lambda path: path.write_bytes(pickle.dumps(Planted(f"touch {mark}"))),
        "torch": lambda path: torch.save({"w": torch.zeros(2), "evil": Planted(f"touch {mark}")}, path),
        "old": lambda path: torch.save({"evil": Imports()}, path, _use_new_zipfile_serialization=False),
        "deep": lambda path: torch.save({"w": torch.zeros(2), "deep": [{"evil": Imports()}]}, path),
    }
    (folder / "model.safetensors").unlink()
    (folder / "planted.py").write_text("raise SystemExit('it ran')")
    for name, make in files.items():
        shutil.copytree(folder, tmp_path / name)
        make(tmp_path / name / "pytorch_model.bin")
    completed = subprocess.run(
        [sys.executable, "-c", WATCH, *(str(tmp_path / name) for name in files)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )
    damaged = "it is damaged, or not a torch file"
    reasons = {
        "plain": damaged,
        "torch": "it needs posix.system",
        "old": "it needs __import__",
        "deep": "it needs __import__",
    }
    for line, name in zip(completed.stdout.splitlines(), files, strict=True):
        assert line.startswith(f"{name} "), completed.stderr
        assert line.endswith(f"not readable as plain tensors, and nothing else in it is executed: {reasons[name]} []")
    assert not mark.exists()
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize("content", [{"state_dict": {"w": 1}}, [torch.zeros(2)], {"w": "text"}, {3: torch.zeros(2)}])
def test_a_bin_of_something_else(content: Any, folder: Path, assert_refused: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    assert_refused("contains something other than named tensors")


def test_an_out_that_exists(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(
        MeristemError, match="run already exists, and an import overwrites nothing: choose another --out"
    ):
        import_folder(folder, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]
    with pytest.raises(MeristemError, match="already exists"):
        import_folder(folder, tmp_path / "run" / "mine.txt")
    (tmp_path / "empty").mkdir()
    assert import_folder(folder, tmp_path / "empty").run == tmp_path / "empty"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), RuntimeError("odd")])
def test_an_import_that_stops_midway_leaves_nothing(
    error: BaseException, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_written = 0

    def fails(file: int, data: Any) -> None:
        nonlocal num_written
        num_written += 1
        if num_written == 4:
            raise error
        os.write(file, data)

    monkeypatch.setattr(disk, "write", fails)
    with pytest.raises(MeristemError if isinstance(error, OSError) else type(error)):
        import_folder(folder, tmp_path / "runs" / "x")
    assert list((tmp_path / "runs").iterdir()) == []
    monkeypatch.undo()
    assert import_folder(folder, tmp_path / "runs" / "x").run.is_dir()


def test_what_a_killed_import_left_is_cleared_away(folder: Path, tmp_path: Path) -> None:
    leftover = tmp_path / ".run.unfinished" / "checkpoints"
    leftover.mkdir(parents=True)
    import_folder(folder, tmp_path / "run")
    assert not leftover.parent.exists()


def test_a_folder_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MeristemError, match="could not be written"):
        import_folder(folder, tmp_path / "file" / "run")


def test_the_command_line_says_it_without_a_traceback(folder: Path, tmp_path: Path) -> None:
    change_config(folder, model_type="rwkv")
    completed = subprocess.run(
        [sys.executable, "-m", "meristem", "import", str(folder), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode != 0
    assert "model_type 'rwkv'" in completed.stderr
    assert "Traceback" not in completed.stderr
