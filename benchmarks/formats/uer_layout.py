"""UER-py's checkpoint layout of a BERT with random weights, and its own formulas.

UER-py is no package that could be installed and asked.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.formats.nanogpt_layout import HEADS, LAYERS, LENGTH, WIDTH, random_tensors

IDS = torch.tensor([[2, 5, 6, 7, 3, 8, 9, 3]])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
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


def write_uer(folder: Path, *, later_names: bool) -> tuple[Path, Path, Path]:
    """The files that UER-py has of a BERT: model.bin, its config and its vocabulary."""
    model, config, vocabulary = folder / "model.bin", folder / "base_config.json", folder / "vocab.txt"
    torch.save(uer_checkpoint(later_names=later_names), model)
    config.write_text(json.dumps(UER_CONFIG))
    vocabulary.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return model, config, vocabulary
