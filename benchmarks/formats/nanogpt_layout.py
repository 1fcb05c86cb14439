"""nanoGPT's checkpoint layout with random weights, and the forward pass of its model.py.

nanoGPT is no package that could be installed and asked.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LAYERS, WIDTH, HEADS, LENGTH = 2, 32, 4, 24
CHARACTERS = sorted(set("\n !,.abcdefghijklmnopqrstuvwxyz'"))
TEXT = "to be, or not to be\nsaid he"[:LENGTH]


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
