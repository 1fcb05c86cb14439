"""Checkpoints of nanoGPT and UER-py, written in their layouts, as runs with the outputs of their own formulas."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.formats.nanogpt_layout import CHARACTERS, HEADS, TEXT, nanogpt_checkpoint, nanogpt_logits, write_meta
from benchmarks.formats.uer_layout import IDS, SEGMENTS, uer_checkpoint, uer_outputs, write_uer
from meristem.api import import_folder
from meristem.checkpoint.load_run import load_run
from meristem.cli.app import app
from meristem.config.errors import MeristemError


@pytest.mark.parametrize(("bias", "compiled"), [(False, True), (True, False)])
def test_a_nanogpt_checkpoint_becomes_a_run_with_equal_logits(bias: bool, compiled: bool, tmp_path: Path) -> None:
    checkpoint = nanogpt_checkpoint(bias=bias, compiled=compiled)
    torch.save(checkpoint, tmp_path / "ckpt.pt")
    assert torch.load(tmp_path / "ckpt.pt", weights_only=True)["iter_num"] == 2000
    write_meta(tmp_path / "meta.pkl")
    result = CliRunner().invoke(
        app,
        ["import", str(tmp_path / "ckpt.pt"), "--tokenizer", str(tmp_path / "meta.pkl"), "--out", str(tmp_path / "r")],
    )
    assert result.exit_code == 0, result.exception
    assert "trained for 2,000 iterations" in result.output
    run = load_run(tmp_path / "r")
    ids = torch.tensor([run.tokenizer.encode(TEXT).ids.tolist()])
    assert ids[0].tolist() == [CHARACTERS.index(character) for character in TEXT]
    assert run.tokenizer.decode(ids[0].tolist()) == TEXT
    model = run.learner.model.eval()
    with torch.no_grad():
        ours = model.heads["clm"](model.backbone(tokens=ids, causal=True).last_hidden_state)
    theirs = nanogpt_logits(checkpoint, ids)
    assert ours.shape[-1] == len(CHARACTERS) + 1
    assert float((ours[..., :-1] - theirs).abs().max()) <= 1e-5 * max(1.0, float(theirs.abs().max()))
    assert not ours[..., -1].any()


@pytest.mark.parametrize("later_names", [False, True])
def test_a_uer_checkpoint_becomes_a_run_with_equal_logits(later_names: bool, tmp_path: Path) -> None:
    checkpoint, config, vocabulary = write_uer(tmp_path, later_names=later_names)
    assert torch.load(checkpoint, weights_only=True)
    options = ["--config", str(config), "--tokenizer", str(vocabulary)]
    command = ["import", str(checkpoint), *options, "--from", "uer", "--out", str(tmp_path / "r")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.exception
    run = load_run(tmp_path / "r")
    assert run.recipe.model.heads == HEADS
    model = run.learner.model.eval()
    with torch.no_grad():
        states = model.backbone(tokens=IDS, segments=SEGMENTS).last_hidden_state
        ours = model.heads["mlm"](states), model.heads["nsp"](states[:, 0])
    theirs = uer_outputs(uer_checkpoint(later_names=False), IDS, SEGMENTS + 1)
    for mine, expected in zip(ours, theirs, strict=True):
        assert float((mine - expected).abs().max()) <= 2e-5 * max(1.0, float(expected.abs().max()))


def test_uer_data_is_read_as_it_is(tmp_path: Path) -> None:
    """The TSV files of UER-py's datasets: text_a, text_b and label; tags and words separated by spaces."""
    from meristem.labelled.load import load_samples
    from meristem.labelled.settings import DataSettings

    (tmp_path / "train.tsv").write_text("label\ttext_a\n1\t这本书很好\n0\t不好看\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("text_a\ttext_b\tlabel\n你好\t您好\t1\n去哪\t几点\t0\n", encoding="utf-8")
    (tmp_path / "ner.tsv").write_text("text_a\tlabel\n海 钓 比 赛\tO O O B-LOC\n", encoding="utf-8")
    settings = DataSettings()
    texts = load_samples(str(tmp_path / "train.tsv"), settings.model_copy(update={"text": "text_a"}), "text")
    assert [(sample.inputs["text"], sample.gold) for sample in texts] == [("这本书很好", "1"), ("不好看", "0")]
    pairs = load_samples(str(tmp_path / "pairs.tsv"), settings, "pair")
    assert [sample.gold for sample in pairs] == ["1", "0"]
    (tagged,) = load_samples(str(tmp_path / "ner.tsv"), settings.model_copy(update={"text": "text_a"}), "words")
    assert tagged.inputs["words"] == ("海", "钓", "比", "赛") and tagged.gold == ("O", "O", "O", "B-LOC")


class Evil:
    """Runs a command where a pickle is loaded."""

    def __reduce__(self) -> Any:
        return print, ("executed",)


def test_hostile_and_wrong_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = nanogpt_checkpoint(bias=True)
    meta = write_meta(tmp_path / "meta.pkl")
    cases: list[tuple[Any, Path | None, str]] = [
        ({"model": Evil(), "model_args": {}}, meta, "nothing else in it is executed"),
        ({"weights": torch.zeros(2)}, meta, "neither a checkpoint of nanoGPT"),
        ({**checkpoint, "model_args": {"n_layer": "two"}}, meta, "model_args must have the numbers"),
        (checkpoint, None, "nanoGPT keeps its tokenizer elsewhere"),
        ({**checkpoint, "model": {"transformer.wte.weight": torch.zeros(2, 2)}}, meta, "is missing|too large"),
        (uer_checkpoint(later_names=False), None, "UER-py keeps its vocabulary elsewhere"),
        (
            {**uer_checkpoint(later_names=False), "encoder.rnn.weight": torch.zeros(2)},
            meta,
            "encoder.rnn.weight has no",
        ),
    ]
    for number, (content, tokenizer, reason) in enumerate(cases):
        path = tmp_path / f"{number}.pt"
        torch.save(content, path)
        with pytest.raises(MeristemError, match=reason):
            import_folder(path, tmp_path / f"run{number}", tokenizer=tokenizer)
        assert not (tmp_path / f"run{number}").exists()
    torch.save(checkpoint, tmp_path / "ckpt.pt")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"itos": Evil()}))
    with pytest.raises(MeristemError, match="nothing else in it is executed"):
        import_folder(tmp_path / "ckpt.pt", tmp_path / "run", tokenizer=tmp_path / "evil.pkl")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "ckpt.pt").read_bytes()[:3000])
    with pytest.raises(MeristemError, match="damaged, or not a torch file"):
        import_folder(tmp_path / "cut.pt", tmp_path / "run", tokenizer=meta)
    assert "executed" not in capsys.readouterr().out.replace("nothing else in it is executed", "")
