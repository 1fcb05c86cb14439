"""`meristem attention` as a person meets it: tables, pictures, numbers, folders, and words on what cannot be shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runner import Meristem

from meristem.api import load
from meristem.config.recipe import resolve_recipe
from meristem.drawing.attention_record import ATTENTION_DESCRIPTIONS
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

LINES = [f"Ada walked from the old harbour to garden {n}, and 安娜走回家。" for n in range(40)]
TEXT = "Ada walked home from the old garden."
TWO = {"layers": 2, "hidden_size": 32, "heads": 2, "max_length": 48}
RUNS: dict[str, dict[str, Any]] = {
    "bert": {"model": {"family": "bert", **TWO}, "objective": "mlm"},
    "gpt2": {"model": {"family": "gpt2", **TWO}, "objective": "clm", "tokenizer": {"kind": "bpe", "vocab_size": 400}},
    "xl": {"model": {"family": "transformer_xl", **TWO, "memory_length": 8}, "objective": "clm"},
    "xlnet": {"model": {"family": "xlnet", **TWO}, "objective": "plm"},
    "translator": {"model": {"family": "transformer", **TWO}, "objective": "seq2seq", "corpus": {"target": "b"}},
    "captioner": {
        "model": {"family": "captioner", **TWO, "image_size": 16, "patch_size": 8},
        "objective": "caption",
        "corpus": {"image": "p"},
        "dataset": {"image_size": 16},
    },
    "elmo": {
        "model": {"family": "elmo", "layers": 1, "hidden_size": 16, "cell_size": 16, "char_filters": ((1, 8),)},
        "objective": "bilm",
    },
    "pairs": {
        "model": {"family": "bert", **TWO},
        "task": {
            "name": "pair",
            "backbone_mode": "bidirectional",
            "max_length": 48,
            "labels": ("no", "yes"),
            "problem_type": "single",
        },
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs as training leaves them, with weights that nobody trained."""
    return {name: _run(tmp_path_factory.mktemp("runs") / name, run) for name, run in RUNS.items()}


def _run(out: Path, recipe_overrides: dict[str, Any]) -> Path:
    plain = {
        "tokenizer": {"kind": "words" if "elmo" in str(recipe_overrides) else "wordpiece", "vocab_size": 300},
        **recipe_overrides,
    }
    data = (
        {"data": {"train": "none.tsv"}}
        if "task" in recipe_overrides
        else {"corpus": {"source": "none.txt", **recipe_overrides.get("corpus", {})}}
    )
    recipe = resolve_recipe("run", {**plain, **data})
    words = train_tokenizer(recipe.tokenizer, LINES)
    learner = build_learner(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {}).path


# ------------------------------------------------------------ in the terminal


def test_a_table_names_what_each_token_looks_at(meristem: Meristem, runs: dict[str, Path]) -> None:
    result = meristem("attention", runs["bert"], TEXT)
    assert result.code == 0, result.err
    self_attention = load(runs["bert"]).look(TEXT).kinds["self"]
    head, *rows = result.out.split("\n\n")[0].splitlines(), *result.out.split("\n\n")[1].splitlines()
    assert head[0] == "bert · self · mean of 2 heads, layer 2 of 2" and head[-1] == TEXT
    assert len(rows) == len(self_attention.queries)
    mean = self_attention.mean(2)
    for row, query, weights in zip(rows, self_attention.queries, mean, strict=True):
        best = int(weights.argmax())
        assert row.split()[:3] == [query, self_attention.keys[best], f"{weights[best]:.0%}"]
    output = meristem("attention", runs["bert"], TEXT, "--layer", 1, "--head", 2).out
    assert "layer 1 of 2, head 2 of 2" in output and output != result.out
    assert "rollout through 2 layers" in meristem("attention", runs["bert"], TEXT, "--rollout").out


def test_numbers_for_other_programs(meristem: Meristem, runs: dict[str, Path]) -> None:
    (attention,) = meristem("attention", runs["gpt2"], "the old 花园", "--json").answers
    assert attention == load(runs["gpt2"]).look("the old 花园").to_dict()
    assert "".join(attention["kinds"]["self"]["keys"][1:4]).replace("␣", " ").startswith("the old")
    np.testing.assert_allclose(np.array(attention["kinds"]["self"]["weights"]).sum(-1), 1.0, atol=0.01)


def test_a_translation_is_shown_beside_its_source(meristem: Meristem, runs: dict[str, Path]) -> None:
    (attention,) = meristem(
        "attention", runs["translator"], "Ada walked home.", "--target", "安娜走回家。", "--json"
    ).answers
    assert attention["target"] == "安娜走回家。" and list(attention["kinds"]) == ["cross", "self", "decoder"]
    assert attention["kinds"]["cross"]["queries"][:2] == ["安", "娜"]
    (decoder_attention,) = meristem(
        "attention", runs["translator"], "Ada walked home.", "--kind", "decoder", "--json"
    ).answers
    assert list(decoder_attention["kinds"]) == ["decoder"]
    table = meristem("attention", runs["translator"], "Ada walked home.", "--target", "安娜走回家。").out
    assert "cross" in table and "→ 安娜走回家。" in table


def test_two_streams_memory_and_parts(meristem: Meristem, runs: dict[str, Path]) -> None:
    (attention,) = meristem("attention", runs["xlnet"], "the old garden", "--order", "2,0,1", "--json").answers
    assert attention["order"] == [2, 0, 1] and list(attention["kinds"]) == ["self", "content", "query"]
    assert (
        "order: garden the old"
        in meristem("attention", runs["xlnet"], "the old garden", "--order", "2,0,1", "--kind", "query").out
    )
    (attention,) = meristem("attention", runs["xl"], "the garden", "--before", "Ada walked", "--json").answers
    assert len(attention["kinds"]["self"]["keys"]) > len(attention["kinds"]["self"]["queries"]) > 0
    (attention,) = meristem("attention", runs["pairs"], "the old", "--text-b", "garden", "--json").answers
    assert attention["kinds"]["self"]["keys"].count("[SEP]") == 2


# ------------------------------------------------------------ files


def test_pictures_are_written(meristem: Meristem, runs: dict[str, Path]) -> None:
    pytest.importorskip("matplotlib")
    result = meristem("attention", runs["bert"], TEXT, "--out", "a.png")
    assert (result.code, result.out) == (0, "") and "wrote a.png" in result.err
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    meristem(
        "attention", runs["translator"], "Ada walked home.", "--target", "安娜走回家。", "--mean", "--out", "a.svg"
    )
    text = Path("a.svg").read_text(encoding="utf-8")
    assert "walked" in text and "娜" in text and "translator · cross" in text
    meristem("attention", runs["bert"], TEXT, "--out", "a.json")
    assert json.loads(Path("a.json").read_text(encoding="utf-8")) == load(runs["bert"]).look(TEXT).to_dict()


def test_a_picture_is_captioned_with_where_it_looked(meristem: Meristem, runs: dict[str, Path]) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    pixels = np.random.default_rng(0).integers(256, size=(40, 40, 3), dtype=np.uint8)
    image.fromarray(pixels).save("scene.png")
    result = meristem(
        "attention", runs["captioner"], "--image", "scene.png", "--target", "the old garden", "--out", "a.svg"
    )
    assert result.code == 0, result.err
    text = Path("a.svg").read_text(encoding="utf-8")
    assert text.count("<image ") == 5 and ">garden<" in text
    (attention,) = meristem("attention", runs["captioner"], "--image", "scene.png", "--json").answers
    assert attention["kinds"]["image"]["keys"] == ["1,1", "1,2", "2,1", "2,2"]


def test_a_file_of_texts_becomes_a_folder(meristem: Meristem, runs: dict[str, Path]) -> None:
    Path("texts.txt").write_text("the old garden\n\nAda walked\n", encoding="utf-8")
    result = meristem("attention", runs["bert"], "--file", "texts.txt", "--out", "shown/here", "--format", "json")
    assert result.code == 0, result.err
    assert sorted(path.name for path in Path("shown/here").iterdir()) == ["0001.json", "0003.json"]
    assert json.loads(Path("shown/here/0003.json").read_text(encoding="utf-8"))["text"] == "Ada walked"
    lines = meristem("attention", runs["bert"], "--file", "texts.txt", "--json").answers
    assert [line["text"] for line in lines] == ["the old garden", "Ada walked"]
    result = meristem("attention", runs["xlnet"], "--file", "texts.txt", "--order", "2,0,1", "--json")
    assert (result.code, len(result.answers)) == (1, 1)  # the order fits one of them, and the other is named
    assert "texts.txt:3: order: expected each of the text's" in result.err


# ------------------------------------------------------------ what cannot be shown


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("bert", (), "give a text, --image FILE for a captioning model, or --file"),
        ("bert", ("a", "--layer", 9), "layer 9: there are 2, numbered from 1"),
        ("bert", ("a", "--head", 3), "head 3: there are 2, numbered from 1"),
        ("bert", ("a", "--kind", "cross"), "kind cross: this model has no such attention; it has self"),
        ("bert", ("a", "--grid", "--mean"), "--grid and --mean: cannot be combined"),
        ("bert", ("a", "--grid", "--head", 1), "a head is a single map"),
        ("bert", ("a", "--target", "b"), "target: this model does not generate from a source"),
        ("bert", ("a", "--before", "b"), "before: this model has no memory"),
        ("bert", ("a", "--out", "a.gif"), "one of .png, .svg, .json"),
        ("bert", ("a", "--file", "t.txt"), "cannot be combined with a text"),
        ("bert", ("--file", "t.txt"), "t.txt"),
        ("bert", ("--image", "no.png"), "no.png"),
        ("translator", ("a", "--kind", "cross", "--rollout"), "choose kind self or decoder"),
        ("xlnet", ("a", "--order", "x"), "expected token numbers from 0, as in 2,0,1"),
        ("elmo", ("a",), "this ELMo has no attention"),
        ("pairs", ("a",), "task pair needs text_b"),
    ],
)
def test_what_cannot_be_shown_is_said(
    run: str, words: tuple[Any, ...], message: str, meristem: Meristem, runs: dict[str, Path]
) -> None:
    result = meristem("attention", runs[run], *words)
    assert result.code in (1, 2) and message in result.err, result.err
    assert not result.out


def test_help_shows_examples(meristem: Meristem) -> None:
    output = meristem("attention", "--help").out
    assert "--rollout" in output and "meristem attention runs/captioner --image scene.png" in output


def test_the_page_names_what_there_is(meristem: Meristem) -> None:
    page = (Path(__file__).parent.parent / "docs" / "attention.md").read_text(encoding="utf-8")
    output = meristem("attention", "--help").out
    named = set(re.findall(r"--[a-z][a-z-]+", page))
    assert len(named) > 12 and not [option for option in named if option not in output]
    assert all(f"`{kind}`" in page for kind in ATTENTION_DESCRIPTIONS)
    for picture in re.findall(r"\]\((pictures/[\w.-]+)\)", page):
        assert (Path(__file__).parent.parent / "docs" / picture).is_file()
