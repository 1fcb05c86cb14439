"""Models of shapes alone: the shapes of real ones, no values, and no seconds spent on importing a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from meristem.batch import Head, Model
from meristem.blocks.shapes import shapes_alone
from meristem.settings import find

SMALL = {"layers": 2, "width": 32, "heads": 4, "length": 24}


@pytest.mark.parametrize("family", ["bert", "gpt2", "modern", "electra", "xlnet", "transformer"])
def test_the_shapes_are_those_of_a_real_model(family: str) -> None:
    cls = find("models", family)
    heads = {"words": Head("vocabulary"), "tags": Head("tags", (("classes", 3),))}
    real = Model(cls(cls.Settings.model_validate(SMALL), 50), heads)
    with shapes_alone():
        ghost = Model(cls(cls.Settings.model_validate(SMALL), 50), heads)
    assert {name: p.shape for name, p in ghost.named_parameters()} == {n: p.shape for n, p in real.named_parameters()}
    assert all(p.is_meta for p in ghost.parameters())


def test_outside_numbers_are_drawn_again() -> None:
    with shapes_alone():
        torch.nn.Linear(3, 3)
    assert torch.nn.Linear(30, 30).weight.std() > 0


def test_no_compiler_is_imported() -> None:
    code = """
import sys
from meristem.blocks.shapes import shapes_alone
from meristem.models.bert import Bert
with shapes_alone():
    Bert(Bert.Settings(layers=2, width=32, heads=4, length=24), 50)
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
