"""Text as it comes: a run trains on it or says clearly why not; it never hangs and never is silent."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import meristem
from meristem.config.errors import MeristemError
from meristem.training import budget

pytestmark = pytest.mark.timeout(60)

TINY = [
    "model.layers=1",
    "model.hidden_size=32",
    "model.heads=2",
    "model.max_length=32",
    "tokenizer.vocab_size=300",
    "train.batch_tokens=128",
    "train.steps=3",
    "train.threads=1",
    "corpus.processes=1",
    "corpus.document=line",
]
LINES = [f"On day {number} the sailor sold {number % 7} boats to the painter." for number in range(120)]
GOOD = "\n".join(LINES) + "\n"

Train = Callable[..., str]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Train on a source below the test's folder; all that was said."""
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)

    def run(source: str, *overrides: str, recipe: str = "bert-mini") -> str:
        stream = io.StringIO()
        result = meristem.pretrain(
            recipe,
            [*TINY, *overrides],
            source=str(tmp_path / source),
            out=tmp_path / "run",
            console=Console(file=stream, width=500),
        )
        assert result.step == 3
        return stream.getvalue()

    return run


def refusal_message(train: Train, source: str, *overrides: str, recipe: str = "bert-mini") -> str:
    with pytest.raises(MeristemError) as error:
        train(source, *overrides, recipe=recipe)
    return str(error.value)


# ------------------------------------------------------------ nothing to train on


def test_no_file(train: Train, tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text(GOOD, encoding="utf-8")
    message = refusal_message(train, "novle.txt")
    assert "no such file or folder" in message and "did you mean novel.txt?" in message


@pytest.mark.parametrize("recipe", ["bert-mini", "gpt2-mini"])
@pytest.mark.parametrize("content", [b"", b"\n\n\n", b"   \t \n", b"\xef\xbb\xbf", b"\0\0\0\0"])
def test_a_file_without_text(train: Train, tmp_path: Path, content: bytes, recipe: str) -> None:
    (tmp_path / "empty.txt").write_bytes(content)
    message = refusal_message(train, "empty.txt", recipe=recipe)
    assert "empty.txt" in message or "no document" in message or "no text" in message
    assert not (tmp_path / "run/recipe.yaml").exists(), "a run was begun on nothing"


def test_a_folder_without_text(train: Train, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/cat.png").write_bytes(b"\x89PNG")
    message = refusal_message(train, "pictures")
    assert "no readable files in this folder" in message and ".png (1)" in message and "readable are .txt" in message


def test_an_ending_nobody_reads(train: Train, tmp_path: Path) -> None:
    (tmp_path / "book.docx").write_bytes(b"PK\x03\x04")
    assert ".docx files cannot be read" in refusal_message(train, "book.docx")


@pytest.mark.parametrize("name", ["not.txt.gz", "not.jsonl.gz", "not.parquet", "not.txt.zst"])
def test_a_file_that_is_not_what_its_ending_says(train: Train, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD, encoding="utf-8")
    assert name in refusal_message(train, name)


# ------------------------------------------------------------ text with something wrong in it


def test_invalid_utf8_is_mended_and_said(train: Train, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(GOOD.encode() + b"caf\xe9 \xff\xfe and so on\n" * 3)
    output = train("bad.txt")
    assert "bad.txt" in output


def test_nul_bytes(train: Train, tmp_path: Path) -> None:
    (tmp_path / "nul.txt").write_bytes(GOOD.encode().replace(b"sailor", b"sai\0lor"))
    assert "120 documents read" in train("nul.txt")
    assert "\0" not in (tmp_path / "run/tokenizer.json").read_text(encoding="utf-8")


def test_a_byte_order_mark_is_not_a_letter(train: Train, tmp_path: Path) -> None:
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    train("bom.txt")
    assert "\ufeff" not in (tmp_path / "run/tokenizer.json").read_text(encoding="utf-8")


def test_utf16_with_a_mark(train: Train, tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_bytes(GOOD.encode("utf-16"))
    train("wide.txt")
    vocabulary = json.loads((tmp_path / "run/tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert "the" in vocabulary


def test_a_gzip_file_that_is_cut_off(train: Train, tmp_path: Path) -> None:
    compressed = gzip.compress(("\n".join(f"{number} {hash_}" for number, hash_ in enumerate(LINES * 40))).encode())
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text(GOOD, encoding="utf-8")
    (tmp_path / "texts/b.txt.gz").write_bytes(compressed[: len(compressed) // 2])
    output = train("texts")
    assert "b.txt.gz" in output, "half a file went missing in silence"


def test_broken_json_lines_are_counted(train: Train, tmp_path: Path) -> None:
    lines = [json.dumps({"text": line}) for line in LINES]
    lines[3], lines[50], lines[60] = '{"text": "cut', "not json", '{"other": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    output = train("a.jsonl")
    assert "120 documents read; 117 kept" in output
    assert output.count("dropped") >= 1


def test_json_lines_of_which_none_is_one(train: Train, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(GOOD, encoding="utf-8")
    assert "a.jsonl" in refusal_message(train, "a.jsonl")


def test_a_table_without_the_column(train: Train, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price\n1,2\n3,4\n", encoding="utf-8")
    message = refusal_message(train, "a.csv", "corpus.text=body")
    assert "body" in message and "price" in message


# ------------------------------------------------------------ too little, too much, another script


@pytest.mark.parametrize("recipe", ["bert-mini", "gpt2-mini", "roberta-mini"])
def test_one_tiny_document(train: Train, tmp_path: Path, recipe: str) -> None:
    (tmp_path / "tiny.txt").write_text("Hello world. " * (8 if recipe == "bert-mini" else 1), encoding="utf-8")
    output = train("tiny.txt", recipe=recipe)
    assert ("negatives of next sentence prediction come from elsewhere in it" in output) == (recipe == "bert-mini")
    assert "the text is smaller than one batch of 128 tokens: every step repeats it" in output
    assert "too few documents to hold any out" in output


def test_text_smaller_than_a_batch(train: Train, tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("\n".join(LINES[:4]), encoding="utf-8")
    output = train("small.txt", "train.batch_tokens=4096")
    assert "smaller than one batch of 4,096 tokens" in output


def test_a_long_line_without_an_end(train: Train, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(" ".join(LINES * 100), encoding="utf-8")
    assert "1 documents read; 1 kept" in train("long.txt", recipe="gpt2-mini")


def test_the_same_line_over_and_over(train: Train, tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text("All work and no play.\n" * 500, encoding="utf-8")
    assert "499 dropped (duplicate)" in train("same.txt", recipe="gpt2-mini")


@pytest.mark.parametrize("recipe", ["bert-mini", "gpt2-mini"])
def test_chinese(train: Train, tmp_path: Path, recipe: str) -> None:
    lines = [f"第{number}天，老园丁在港口卖了{number % 9}条船。邻居说：“今年的收成很好！”" for number in range(200)]
    (tmp_path / "中文").mkdir()
    (tmp_path / "中文/故事.txt").write_text("\n".join(lines), encoding="utf-8")
    assert "200 documents read; 200 kept" in train("中文", recipe=recipe)
    if recipe == "bert-mini":
        (filled,) = meristem.load(tmp_path / "run").fill("老园丁在港口卖了[MASK]条船。")
        assert all(len(candidate.token.removeprefix("##")) >= 1 for candidate in filled.candidates)
    else:
        ((completion,),) = meristem.load(tmp_path / "run").generate("老园丁", max_tokens=5)
        assert completion.text is not None


def test_emoji_control_characters_and_right_to_left(train: Train, tmp_path: Path) -> None:
    unusual_lines = [
        "👩‍👩‍👧‍👦 family \u200d\u200e",
        "\x07\x1b[31mred\x1b[0m",
        "שלום עולם",
        "مرحبا بالعالم",
        "e\u0301\u0301\u0301",
        "\ud7ff\U0010ffff",
    ]
    lines = [f"{line} {number}" for number in range(40) for line in unusual_lines]
    (tmp_path / "odd.txt").write_text("\n".join(lines), encoding="utf-8")
    assert "kept" in train("odd.txt", recipe="gpt2-mini")
