"""How deep a parameter lies: heads on top, the layers below them, and at the bottom what words enter through."""

from __future__ import annotations

import re

from torch import nn

from meristem.batch import Model

_LAYER = re.compile(r"(?P<stack>.*?)(?:(?<![^.])layers\.(?P<layer>\d+)\.|[^.]*_l(?P<cell>\d+)(?:_reverse)?$)")
"""A layer is numbered in a list called `layers`, or by torch in the names of a recurrent net (`weight_hh_l0`)."""


def depths(model: Model) -> dict[nn.Parameter, int]:
    """0 for heads, 1 for the top layer of each stack, 2 for the one below; the embeddings lie below the tallest stack.

    What a stack does after its last layer (a norm) goes with its top layer.
    """
    named = dict(model.backbone.named_parameters())
    layers = {name: found for name in named if (found := _LAYER.match(name))}
    heights: dict[str, int] = {}
    for found in layers.values():
        heights[found["stack"]] = max(heights.get(found["stack"], 0), _number(found) + 1)
    bottom = max(heights.values(), default=0) + 1
    rooms = tuple({f"{stack.split('.')[0]}." for stack in heights if stack})
    tables = {module.weight for module in model.backbone.modules() if isinstance(module, nn.Embedding)}
    out: dict[nn.Parameter, int] = {}
    for name, parameter in named.items():
        if name in layers:
            out[parameter] = heights[layers[name]["stack"]] - _number(layers[name])
        else:
            out[parameter] = 1 if name.startswith(rooms) and parameter not in tables else bottom
    for parameter in model.heads.parameters():
        out.setdefault(parameter, 0)  # a head that is tied to the embeddings lies where they do
    return out


def _number(found: re.Match[str]) -> int:
    return int(found["layer"] or found["cell"] or 0)
