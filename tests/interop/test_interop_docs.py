"""docs/interop.md: its tables list the supported classes, and its examples work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import transformers
from typer.testing import CliRunner

from meristem.cli.app import app
from meristem.interop.model_type import MODEL_TYPES
from meristem.training import budget

PAGE = (Path(__file__).parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w-]+)`(.*?) \| (.*?) \| `(\w+)` \| (.*?) \| .* \|$", PAGE, re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_table_has_its_row_and_every_class_its_place() -> None:
    documented = {
        kind: [prefix + ending for ending in re.findall(r"`(\w+)`", endings)] for kind, _, _, prefix, endings in ROWS
    }
    tables = [MODEL_TYPES[name] for name in MODEL_TYPES]
    assert documented == {table.name: list(table.architectures) for table in tables}
    for kind, note, family, _, _ in ROWS:
        table = next(table for table in tables if table.name == kind)
        assert all(f"`{family_name}`" in family for family_name in (table.family, *table.extra_families)), kind
        assert ("read only" in note) is not table.exportable, kind


def test_the_lines_it_shows_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # the page's own
    assert capsys.readouterr().out.strip() == code.rsplit("# ", 1)[1].strip()
    for kind, lines in (("bert", namespace["BERT"]), ("gpt2", [namespace["GPT2"]]), ("bart", [namespace["BART"]])):
        assert set(lines) <= set(MODEL_TYPES[kind].body_rules)


def test_its_commands_work_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "old", "gardener", "sold", "a", "tree", "."]
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=32, **shape)
    transformers.BertForMaskedLM(config).save_pretrained("bert-base-uncased")
    Path("bert-base-uncased/vocab.txt").write_text("\n".join(words) + "\n")
    Path("my-texts").mkdir()
    Path("my-texts/one.txt").write_text("\n\n".join(["The old gardener sold a tree. A gardener sold the tree."] * 60))
    commands = [line for line in blocks("bash")[0].splitlines() if "--onnx" not in line]
    assert len(commands) == 6
    for command in commands:
        arguments = shlex.split(command, comments=True)
        if arguments[1] == "pretrain":
            arguments += ["train.steps=2", "train.batch_tokens=64", "train.threads=1", "corpus.processes=1"]
        result = CliRunner().invoke(app, arguments[1:])
        assert result.exit_code == 0, (command, result.output, result.exception)
    assert transformers.AutoModelForMaskedLM.from_pretrained("exported").config.hidden_size == 32
    assert Path("vectors/modules.json").is_file()
    assert Path("llama/model.gguf").is_file() and Path("runs/again/recipe.yaml").is_file()
