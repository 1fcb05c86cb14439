"""Models of shapes alone: the shapes of real ones, no values, and no seconds spent on importing a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from meristem.blocks.meta_init import on_meta_device
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model

SMALL = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 24}


@pytest.mark.parametrize("family", ["bert", "gpt2", "modern", "electra", "xlnet", "transformer"])
def test_the_shapes_are_those_of_a_real_model(family: str) -> None:
    cls = MODEL_FAMILIES[family]
    heads = {"words": Head("vocabulary"), "tags": Head("tags", (("classes", 3),))}
    real = Model(cls(cls.Settings.model_validate(SMALL), 50), heads)
    with on_meta_device():
        ghost = Model(cls(cls.Settings.model_validate(SMALL), 50), heads)
    assert {name: p.shape for name, p in ghost.named_parameters()} == {n: p.shape for n, p in real.named_parameters()}
    assert all(p.is_meta for p in ghost.parameters())


def test_random_initialization_works_again_outside() -> None:
    with on_meta_device():
        torch.nn.Linear(3, 3)
    assert torch.nn.Linear(30, 30).weight.std() > 0


def test_no_compiler_is_imported() -> None:
    code = """
import sys
from meristem.blocks.meta_init import on_meta_device
from meristem.models.bert import Bert
with on_meta_device():
    Bert(Bert.Settings(layers=2, hidden_size=32, heads=4, max_length=24), 50)
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.stdout.strip() == "[]", completed.stderr
