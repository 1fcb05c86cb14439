"""What a GGUF architecture is: llama.cpp's tensor names and metadata for a model type of transformers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from meristem.config.errors import MeristemError

Config: TypeAlias = Mapping[str, Any]
"""A config.json."""
Layout = Literal["same", "transposed", "rotary"]
"""How llama.cpp stores a tensor: as transformers, transposed, or with the two halves of each head interleaved."""


@dataclass(frozen=True)
class TensorName:
    """A module of transformers and its name in GGUF; `{}` is the layer. Both stand for weight and bias."""

    gguf: str
    theirs: str
    layout: Layout = "same"
    heads_key: str = ""
    """Rotary: the key of config.json with the number of heads."""

    def translate(self, name: str, *, to_gguf: bool) -> str | None:
        """The name of a tensor in the other format; None if it is another module's."""
        pattern, target = (self.theirs, self.gguf) if to_gguf else (self.gguf, self.theirs)
        match = re.fullmatch(re.escape(pattern).replace(r"\{\}", r"(\d+)") + r"(\.weight|\.bias)", name)
        if match is None:
            return None
        *layers, suffix = match.groups()
        return target.format(*layers) + suffix

    def convert(self, tensor: Tensor, config: Config, *, to_gguf: bool) -> Tensor:
        """The tensor as the other format stores it."""
        if self.layout == "transposed" and tensor.ndim == 2:
            return tensor.t()
        if self.layout == "rotary":
            num_heads = config.get(self.heads_key) or config["num_attention_heads"]
            halves = (2, -1) if to_gguf else (-1, 2)
            by_head = tensor.reshape((num_heads, *halves, *tensor.shape[1:]))
            return by_head.transpose(1, 2).reshape(tensor.shape)
        return tensor


@dataclass(frozen=True, kw_only=True)
class GgufArchitecture:
    """One architecture of llama.cpp and the transformers class of the same shape."""

    name: str
    """`general.architecture`."""
    model_type: str
    architecture: str
    """The transformers class whose weights the file holds."""
    metadata: Callable[[Config], dict[str, Any]]
    """config.json → metadata keys without the architecture's prefix."""
    to_config: Callable[[Config], dict[str, Any]]
    """Metadata keys without the prefix → config.json without model type and vocabulary."""
    tensors: tuple[TensorName, ...]
    unsupported: Callable[[Config], str | None] = lambda config: None
    """What llama.cpp cannot compute, or None."""
    scaled_output: bool = False
    """Whether a tied output is scaled by 1/√width, which llama.cpp does not do: the last norm is scaled instead."""

    def find(self, name: str, *, to_gguf: bool) -> tuple[TensorName, str]:
        """The rule of a tensor and its name in the other format."""
        for rule in self.tensors:
            if (translated := rule.translate(name, to_gguf=to_gguf)) is not None:
                return rule, translated
        raise MeristemError(f"{name}: {'GGUF' if to_gguf else self.model_type} has no such tensor in {self.name}")


def scale_last_norm(tensors: dict[str, Tensor], width: int, *, to_gguf: bool) -> None:
    """Move the scale of a tied T5 output into the decoder's last norm, or out of it."""
    name = "dec.output_norm.weight"
    scale = torch.tensor(float(width)).rsqrt()
    tensors[name] = tensors[name] * scale if to_gguf else tensors[name] / scale
