"""Checkpoints of nanoGPT and UER-py, written in their layouts, as runs with the outputs of their own formulas."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from typer.testing import CliRunner

from meristem.api import import_folder
from meristem.checkpoint.load_run import load_run
from meristem.cli.app import app
from meristem.config.errors import MeristemError

LAYERS, WIDTH, HEADS, LENGTH = 2, 32, 4, 24
CHARACTERS = sorted(set("\n !,.abcdefghijklmnopqrstuvwxyz'"))


def random_tensors(shapes: dict[str, tuple[int, ...]], *, one_dimensional: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + (1.0 if name.endswith(one_dimensional) else 0.0)
        for name, shape in shapes.items()
    }


def nanogpt_checkpoint(*, bias: bool, compiled: bool = False) -> dict[str, Any]:
    """What train.py of nanoGPT saves."""
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (len(CHARACTERS), WIDTH),
        "transformer.wpe.weight": (LENGTH, WIDTH),
        "transformer.ln_f.weight": (WIDTH,),
    }
    linears = {"attn.c_attn": (3 * WIDTH, WIDTH), "attn.c_proj": (WIDTH, WIDTH)}
    linears |= {"mlp.c_fc": (4 * WIDTH, WIDTH), "mlp.c_proj": (WIDTH, 4 * WIDTH)}
    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        shapes |= {f"{prefix}{name}.weight": shape for name, shape in linears.items()}
        shapes |= {f"{prefix}ln_{number}.weight": (WIDTH,) for number in (1, 2)}
    if bias:
        shapes |= {name.replace(".weight", ".bias"): (shape[0],) for name, shape in shapes.items() if ".h." in name}
        shapes["transformer.ln_f.bias"] = (WIDTH,)
    state = random_tensors(shapes, one_dimensional="ln_1.weight")
    state["lm_head.weight"] = state["transformer.wte.weight"]
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "block_size": LENGTH, "bias": bias}
    prefix = "_orig_mod." if compiled else ""
    return {
        "model": {prefix + name: tensor for name, tensor in state.items()},
        "optimizer": {"state": {0: {"step": torch.tensor(5.0), "exp_avg": torch.zeros(3)}},
                      "param_groups": [{"lr": 6e-4, "betas": (0.9, 0.95), "fused": True, "params": [0]}]},
        "model_args": {**sizes, "vocab_size": len(CHARACTERS), "dropout": 0.0},
        "iter_num": 2000,
        "best_val_loss": torch.tensor(1.47),
        "config": {"dataset": "shakespeare_char", "device": "cpu", "compile": compiled, "init_from": "scratch"},
    }  # fmt: skip


def nanogpt_logits(checkpoint: dict[str, Any], ids: Tensor) -> Tensor:
    """The forward pass of nanoGPT's model.py."""
    state = {name.removeprefix("_orig_mod."): tensor for name, tensor in checkpoint["model"].items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (WIDTH,), state[f"{name}.weight"], state.get(f"{name}.bias"), 1e-5)

    x = state["transformer.wte.weight"][ids] + state["transformer.wpe.weight"][: ids.shape[1]]
    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        q, k, v = linear(norm(x, prefix + "ln_1"), prefix + "attn.c_attn").split(WIDTH, 2)
        q, k, v = (part.view(*ids.shape, HEADS, WIDTH // HEADS).transpose(1, 2) for part in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + linear(attended, prefix + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, prefix + "ln_2"), prefix + "mlp.c_fc")), prefix + "mlp.c_proj")
    return linear(norm(x, "transformer.ln_f"), "lm_head")


def write_meta(path: Path) -> Path:
    """meta.pkl of data/shakespeare_char/prepare.py."""
    meta = {
        "vocab_size": len(CHARACTERS),
        "itos": dict(enumerate(CHARACTERS)),
        "stoi": {character: number for number, character in enumerate(CHARACTERS)},
    }
    path.write_bytes(pickle.dumps(meta))
    return path


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
    text = "to be, or not to be\nsaid he"[:LENGTH]
    ids = torch.tensor([run.tokenizer.encode(text).ids.tolist()])
    assert ids[0].tolist() == [CHARACTERS.index(character) for character in text]
    assert run.tokenizer.decode(ids[0].tolist()) == text
    model = run.learner.model.eval()
    with torch.no_grad():
        ours = model.heads["clm"](model.backbone(tokens=ids, causal=True).last_hidden_state)
    theirs = nanogpt_logits(checkpoint, ids)
    assert ours.shape[-1] == len(CHARACTERS) + 1
    assert float((ours[..., :-1] - theirs).abs().max()) <= 1e-5 * max(1.0, float(theirs.abs().max()))
    assert not ours[..., -1].any()


UER_CONFIG = {
    "emb_size": WIDTH, "feedforward_size": 48, "hidden_size": WIDTH, "hidden_act": "gelu", "heads_num": HEADS,
    "layers_num": LAYERS, "max_seq_length": LENGTH, "dropout": 0.1, "data_processor": "bert",
    "embedding": "word_pos_seg", "encoder": "transformer", "mask": "fully_visible", "target": "bert",
}  # fmt: skip
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"园丁种下了苹果树船回家", "tree", "##s", "good"]


def uer_checkpoint(*, later_names: bool) -> dict[str, Tensor]:
    """What UER-py saves for a BERT with --target bert."""
    word, pos, seg = ("word.embedding", "pos.embedding", "seg.embedding")
    if not later_names:
        word, pos, seg = ("word_embedding", "position_embedding", "segment_embedding")
    shapes: dict[str, tuple[int, ...]] = {
        f"embedding.{word}.weight": (len(VOCABULARY), WIDTH),
        f"embedding.{pos}.weight": (LENGTH, WIDTH),
        f"embedding.{seg}.weight": (3, WIDTH),
        "embedding.layer_norm.gamma": (WIDTH,),
        "embedding.layer_norm.beta": (WIDTH,),
    }
    for layer in range(LAYERS):
        prefix = f"encoder.transformer.{layer}."
        linears = {f"self_attn.linear_layers.{part}": (WIDTH, WIDTH) for part in range(3)}
        linears |= {"self_attn.final_linear": (WIDTH, WIDTH)}
        linears |= {"feed_forward.linear_1": (48, WIDTH), "feed_forward.linear_2": (WIDTH, 48)}
        for name, shape in linears.items():
            shapes |= {f"{prefix}{name}.weight": shape, f"{prefix}{name}.bias": shape[:1]}
        for number in (1, 2):
            shapes |= {f"{prefix}layer_norm_{number}.{part}": (WIDTH,) for part in ("gamma", "beta")}
    mlm, nsp, norm = (
        ("mlm.linear", "sp.linear", "mlm.layer_norm") if later_names else ("mlm_linear", "nsp_linear", "layer_norm")
    )
    shapes |= {f"target.{mlm}_1.weight": (WIDTH, WIDTH), f"target.{mlm}_1.bias": (WIDTH,)}
    shapes |= {f"target.{norm}.{part}": (WIDTH,) for part in ("gamma", "beta")}
    shapes |= {f"target.{mlm}_2.bias": (len(VOCABULARY),)}
    shapes |= {f"target.{nsp}_1.weight": (WIDTH, WIDTH), f"target.{nsp}_1.bias": (WIDTH,)}
    shapes |= {f"target.{nsp}_2.weight": (2, WIDTH), f"target.{nsp}_2.bias": (2,)}
    state = random_tensors(shapes, one_dimensional="gamma")
    state[f"target.{mlm}_2.weight"] = state[f"embedding.{word}.weight"]
    return state


def uer_norm(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    """UER-py's layer norm: the standard deviation of a sample, and an epsilon beside it."""
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return state[f"{name}.gamma"] * (x - mean) / (deviation + 1e-6) + state[f"{name}.beta"]


def uer_outputs(state: dict[str, Tensor], ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Masked-LM and next-sentence logits by UER-py's formulas; segment 1 is the first text, 2 the second."""

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    x = state["embedding.word_embedding.weight"][ids] + state["embedding.position_embedding.weight"][: ids.shape[1]]
    x = uer_norm(x + state["embedding.segment_embedding.weight"][segments], state, "embedding.layer_norm")
    for layer in range(LAYERS):
        prefix = f"encoder.transformer.{layer}."
        q, k, v = (
            linear(x, f"{prefix}self_attn.linear_layers.{part}").view(*ids.shape, HEADS, -1).transpose(1, 2)
            for part in range(3)
        )
        scores = (q @ k.mT / math.sqrt(WIDTH // HEADS)).softmax(-1)
        attended = linear((scores @ v).transpose(1, 2).reshape(x.shape), f"{prefix}self_attn.final_linear")
        x = uer_norm(x + attended, state, f"{prefix}layer_norm_1")
        widened = F.gelu(linear(x, f"{prefix}feed_forward.linear_1"))
        x = uer_norm(x + linear(widened, f"{prefix}feed_forward.linear_2"), state, f"{prefix}layer_norm_2")
    transformed = uer_norm(F.gelu(linear(x, "target.mlm_linear_1")), state, "target.layer_norm")
    pooled = torch.tanh(linear(x[:, 0], "target.nsp_linear_1"))
    return linear(transformed, "target.mlm_linear_2"), linear(pooled, "target.nsp_linear_2")


@pytest.mark.parametrize("later_names", [False, True])
def test_a_uer_checkpoint_becomes_a_run_with_equal_logits(later_names: bool, tmp_path: Path) -> None:
    torch.save(uer_checkpoint(later_names=later_names), tmp_path / "model.bin")
    assert torch.load(tmp_path / "model.bin", weights_only=True)
    (tmp_path / "base_config.json").write_text(json.dumps(UER_CONFIG))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    options = ["--config", str(tmp_path / "base_config.json"), "--tokenizer", str(tmp_path / "vocab.txt")]
    command = ["import", str(tmp_path / "model.bin"), *options, "--from", "uer", "--out", str(tmp_path / "r")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.exception
    run = load_run(tmp_path / "r")
    assert run.recipe.model.heads == HEADS
    ids = torch.tensor([[2, 5, 6, 7, 3, 8, 9, 3]])
    segments = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
    model = run.learner.model.eval()
    with torch.no_grad():
        states = model.backbone(tokens=ids, segments=segments).last_hidden_state
        ours = model.heads["mlm"](states), model.heads["nsp"](states[:, 0])
    theirs = uer_outputs(uer_checkpoint(later_names=False), ids, segments + 1)
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
