"""Writes transformer_xl.safetensors: reference outputs of transformers 4.37.2, the last with Transformer-XL.

It needs a separate environment, because that version requires an older NumPy:

    python3 -m venv ENV && ENV/bin/pip install transformers==4.37.2 numpy==1.26.4 torch==2.13.0
    ENV/bin/python tests/golden/make_transformer_xl.py
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ["TRUST_REMOTE_CODE"] = "True"  # that version asks for it before it loads a model it has given up on

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import TransfoXLConfig, TransfoXLLMHeadModel

torch.Tensor.float = lambda self: self  # its attention rounds scores to single precision on the way; here it must not
WORDS, ROWS, SEGMENTS = 37, 2, (5, 7, 1, 3)
CASES = {
    "plain": {"cutoffs": [], "untie_r": False},
    "adaptive": {"cutoffs": [10, 20], "untie_r": True, "clamp_len": 6},
    "same": {"cutoffs": [], "untie_r": True, "same_length": True},
}


def model_of(case: dict[str, object]) -> TransfoXLLMHeadModel:
    """Set all weights to random values in double precision, position frequencies included."""
    config = TransfoXLConfig(
        vocab_size=WORDS,
        d_model=16,
        d_embed=16,
        n_head=4,
        d_head=4,
        d_inner=24,
        div_val=1,
        n_layer=2,
        mem_len=7,
        dropout=0.0,
        dropatt=0.0,
        **{"clamp_len": -1, "same_length": False, **case},
    )
    model = TransfoXLLMHeadModel(config).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(values * 0.2 + (0.5 if parameter.ndim == 1 else 0))
    model.transformer.pos_emb.inv_freq = 10_000.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    return model


def run(case: dict[str, object]) -> dict[str, Tensor]:
    """Weights, inputs, log-probabilities of every segment, memories, and the gradients of all segments' loss."""
    model = model_of(case)
    tokens = torch.randint(WORDS, (ROWS, sum(SEGMENTS) + 1), generator=torch.Generator().manual_seed(1))
    tensors = {"tokens": tokens}
    mems, start = [torch.zeros(0, ROWS, 16, dtype=torch.float64) for _ in range(2)], 0
    total = torch.zeros((), dtype=torch.float64)
    for number, length in enumerate(SEGMENTS):
        segment, next_ids = tokens[:, start : start + length], tokens[:, start + 1 : start + length + 1]
        out = model(input_ids=segment, mems=mems)
        mems, start = out.mems, start + length
        scores = out.prediction_scores
        total = total - scores.gather(2, next_ids[:, :, None]).sum()
        tensors[f"scores.{number}"] = scores.detach()
        tensors[f"memory.{number}"] = torch.stack([memory.transpose(0, 1) for memory in mems], 1)
    total.backward()
    tensors["loss"] = total.detach()
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach()
        tensors[f"gradient.{name}"] = parameter.grad
    return {name: tensor.clone().contiguous() for name, tensor in tensors.items()}


def main() -> None:
    """Write all cases to one file."""
    every = {f"{case}/{name}": tensor for case, settings in CASES.items() for name, tensor in run(settings).items()}
    save_file(every, Path(__file__).parent / "transformer_xl.safetensors")


if __name__ == "__main__":
    main()
