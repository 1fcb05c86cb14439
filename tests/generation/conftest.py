"""Tiny models with large random weights, so that hardly two tokens are equally probable, and a bilingual tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

TEXTS = ["The old gardener planted the apple tree. My sister sold seventeen boats and a small garden."] * 3 + [
    "老园丁种下了苹果树。水手记得十七条船。"
] * 3
LENGTH = 24


def make_model(family: str, heads: tuple[str, ...], vocabulary: int, **settings: Any) -> Model:
    """A family's model of two layers."""
    torch.manual_seed(7)
    plain = {
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "max_length": LENGTH,
        "init_std": 0.3,
        "output_init": "normal",
        **settings,
    }
    cls = MODEL_FAMILIES[family]
    if family == "mamba":  # without attention, and with an initialization of its own
        plain = {key: value for key, value in plain.items() if key not in ("heads", "output_init")}
    model = Model(cls(cls.Settings.model_validate(plain), vocabulary), {name: Head("vocabulary") for name in heads})
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and norms that are not all alike show what is left out
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "wordpiece", "vocab_size": 200}), TEXTS)


@pytest.fixture(scope="session")
def bytes_tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "bpe", "vocab_size": 300}), TEXTS)


@pytest.fixture(scope="session")
def causal(tokenizer: Tokenizer) -> Model:
    return make_model("gpt2", ("clm",), tokenizer.vocab_size)


@pytest.fixture(scope="session")
def masked(tokenizer: Tokenizer) -> Model:
    return make_model("bert", ("mlm",), tokenizer.vocab_size)


@pytest.fixture(scope="session")
def make() -> Any:
    return make_model
