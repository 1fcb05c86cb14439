"""Minimal pairs: file formats, scores, counts and errors."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.evaluation.minimal_pairs import MinimalPair, evaluate_pairs, limit_per_paradigm, read_pairs
from meristem.generation.score import score
from meristem.interfaces.backbone import Head, Model
from meristem.models.gpt2 import GPT2, GPT2Settings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

BLIMP = {
    "sentence_good": "The cats sleep.",
    "sentence_bad": "The cats sleeps.",
    "field": "morphology",
    "linguistics_term": "agreement",
    "UID": "regular_plural",
}
BARE = {"sentence_good": "猫睡了。", "sentence_bad": "睡猫了。"}


def lines(*entries: dict[str, str]) -> str:
    return "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    text = "The cats sleep. A dog sleeps here. 猫睡了。狗在这里睡。"
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "wordpiece", "vocab_size": 120}), [text] * 4)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Model:
    torch.manual_seed(1)
    settings = GPT2Settings.model_validate(
        {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 24, "init_std": 0.3}
    )
    return Model(GPT2(settings, tokenizer.vocab_size), {"clm": Head("vocabulary")}).eval()


def test_a_file_a_folder_and_an_archive_hold_the_same_pairs(tmp_path: Path) -> None:
    folder = tmp_path / "pairs" / "inner"
    folder.mkdir(parents=True)
    (folder / "agreement.jsonl").write_text("\ufeff" + lines(BLIMP) + "\n\n", encoding="utf-8")
    (folder / "order.jsonl").write_text(lines(BARE), encoding="utf-8")
    (folder / "notes.txt").write_text("not a pair")
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"data/{file.name}")
    expected = [
        MinimalPair(good="The cats sleep.", bad="The cats sleeps.", phenomenon="agreement", paradigm="regular_plural"),
        MinimalPair(good="猫睡了。", bad="睡猫了。", phenomenon="order", paradigm="order"),
    ]
    assert read_pairs(tmp_path / "pairs") == expected
    assert read_pairs(tmp_path / "pairs.zip") == expected
    assert read_pairs(folder / "order.jsonl") == expected[1:]


def test_zhoblimp_comes_in_a_tar_and_the_supplement_without_phenomena(tmp_path: Path) -> None:
    chinese = {**BARE, "UID": "BA_inversion", "phenomenon": "BA", "pairID": 0}
    supplement = {"row": 0, "contrast": "inanimate vs. animate", "sentence_good": "What did you get?\nI got a chair.",
                  "sentence_bad": "What did you get?\nI got a teacher."}  # fmt: skip
    folder = tmp_path / "ZhoBLiMP"
    folder.mkdir()
    (folder / "BA_inversion.jsonl").write_text(lines(chinese, chinese), encoding="utf-8")
    (folder / "._BA_inversion.jsonl").write_text("a hidden twin")
    (folder / "qa_congruence_easy.jsonl").write_text(lines(supplement), encoding="utf-8")
    expected = [MinimalPair(good="猫睡了。", bad="睡猫了。", phenomenon="BA", paradigm="BA_inversion")] * 2
    for name, mode in (("pairs.tar.gz", "w:gz"), ("pairs.tar", "w")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(folder, "ZhoBLiMP")
        pairs = read_pairs(tmp_path / name)
        assert pairs[:2] == expected
        assert (pairs[2].paradigm, pairs[2].phenomenon, len(pairs)) == ("qa_congruence_easy", "qa_congruence_easy", 3)
        assert pairs == read_pairs(folder)
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    with pytest.raises(MeristemError, match="not readable as a tar archive"):
        read_pairs(tmp_path / "broken.tar.gz")


def test_pairs_may_have_a_source(model: Model, tokenizer: Tokenizer, tmp_path: Path) -> None:
    pair = {**BLIMP, "source": "A dog sleeps here."}
    (tmp_path / "p.jsonl").write_text(lines(pair, BLIMP))
    first, second = read_pairs(tmp_path / "p.jsonl")
    assert (first.source, second.source) == ("A dog sleeps here.", None)
    good, bad = score(model, tokenizer, [pair["source"]] * 2, text_b=[pair["sentence_good"], pair["sentence_bad"]])
    pair_evaluation = evaluate_pairs(model, tokenizer, [first])
    assert pair_evaluation.overall.correct == int(good.logprob > bad.logprob)
    assert evaluate_pairs(model, tokenizer, [first, second]).overall.pairs == 2
    for wrong, message in (({"source": 3}, "source is not a string"), ({"source": "a", "image": "b.png"}, "both"),
                        ({"image": "../b.png"}, "outside the folder")):  # fmt: skip
        (tmp_path / "w.jsonl").write_text(json.dumps({**BLIMP, **wrong}))
        with pytest.raises(MeristemError, match=message):
            read_pairs(tmp_path / "w.jsonl")


def test_broken_lines_are_named(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(lines(BLIMP) + "{broken\n" + lines({"sentence_good": "a"}) + "[1]\n" + "nope\n" * 5)
    with pytest.raises(MeristemError) as error:
        read_pairs(file)
    message = str(error.value)
    assert "8 lines are not valid pairs" in message
    assert f"{file}:2: not JSON" in message
    assert f"{file}:3: no sentence_bad" in message
    assert f"{file}:4: not a JSON object" in message
    assert "and 3 more" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"", "no pairs found"),
        ("latin.jsonl", b"\xe9\n", "not UTF-8"),
        ("fake.zip", b"PK no", "not readable as a zip"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MeristemError, match=message):
        read_pairs(tmp_path / name)
    with pytest.raises(MeristemError, match="no such file"):
        read_pairs(tmp_path / "nowhere.jsonl")


def test_counts_are_what_the_scores_say(model: Model, tokenizer: Tokenizer) -> None:
    sentences = ["The cats sleep.", "cats The sleep.", "A dog here.", "猫睡了。", "狗在这里睡。", "这里狗睡。"]
    language = {sentence: "English" if sentence.isascii() else "中文" for sentence in sentences}
    pairs = [
        MinimalPair(good=a, bad=b, phenomenon="same" if a == b else language[a], paradigm="x")
        for a in sentences
        for b in sentences
    ]
    logprob = {text_score.text: text_score.logprob for text_score in score(model, tokenizer, sentences)}
    judgement = evaluate_pairs(model, tokenizer, pairs)
    for name in ("same", "中文", "English"):
        phenomenon_pairs = [pair for pair in pairs if pair.phenomenon == name]
        right = sum(logprob[pair.good] > logprob[pair.bad] for pair in phenomenon_pairs)
        assert judgement.phenomena[name].pairs == len(phenomenon_pairs)
        assert judgement.phenomena[name].accuracy == right / len(phenomenon_pairs)
    assert judgement.phenomena["same"].correct == 0
    assert judgement.phenomena["same"].ties == judgement.overall.ties == 6
    assert judgement.overall.correct == 15
    assert judgement.paradigms["x"] == judgement.overall


def test_a_limit_is_of_each_paradigm_and_hidden_twins_are_no_pairs(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        for name in ("one", "two"):
            archive.writestr(f"data/{name}.jsonl", lines(*[BARE] * 3))
            archive.writestr(f"__MACOSX/data/._{name}.jsonl", b"\x00\x05\x16\x07\xff")
    (tmp_path / "._hidden.jsonl").write_bytes(b"\xff")
    (tmp_path / "one.jsonl").write_text(lines(BARE), encoding="utf-8")
    pairs = read_pairs(tmp_path / "pairs.zip")
    assert [pair.paradigm for pair in limit_per_paradigm(pairs, 2)] == ["one", "one", "two", "two"]
    assert limit_per_paradigm(pairs, None) == pairs
    assert len(read_pairs(tmp_path)) == 1
