"""Layer depth of each parameter (heads, layers from the top, embeddings), for layer-wise lr decay and unfreezing."""

from __future__ import annotations

import re

from torch import nn

from meristem.interfaces.backbone import Model

_LAYER_PATTERN = re.compile(r"(?P<stack>.*?)(?:(?<![^.])layers\.(?P<layer>\d+)\.|[^.]*_l(?P<cell>\d+)(?:_reverse)?$)")
"""Layers are numbered in a module list called `layers`, or by torch in a recurrent net (`weight_hh_l0`)."""


def layer_depths(model: Model) -> dict[nn.Parameter, int]:
    """0 for heads, 1 for the top layer of each stack, 2 for the one below; embeddings come after the tallest stack.

    A final norm after the last layer has the depth of the top layer.
    """
    named_parameters = dict(model.backbone.named_parameters())
    layer_matches = {name: match for name in named_parameters if (match := _LAYER_PATTERN.match(name))}
    stack_heights: dict[str, int] = {}
    for match in layer_matches.values():
        stack_heights[match["stack"]] = max(stack_heights.get(match["stack"], 0), _layer_index(match) + 1)
    bottom = max(stack_heights.values(), default=0) + 1
    # of a stack that is the backbone itself, only the final norm comes after the layers
    stack_prefixes = tuple({f"{stack.split('.')[0]}." if stack else "final_norm." for stack in stack_heights})
    embedding_weights = {module.weight for module in model.backbone.modules() if isinstance(module, nn.Embedding)}
    depth_by_parameter: dict[nn.Parameter, int] = {}
    for name, parameter in named_parameters.items():
        if layer_match := layer_matches.get(name):
            depth_by_parameter[parameter] = stack_heights[layer_match["stack"]] - _layer_index(layer_match)
        else:
            is_in_stack = name.startswith(stack_prefixes) and parameter not in embedding_weights
            depth_by_parameter[parameter] = 1 if is_in_stack else bottom
    for parameter in model.heads.parameters():
        depth_by_parameter.setdefault(parameter, 0)  # a head that is tied to the embeddings has their depth
    return depth_by_parameter


def _layer_index(match: re.Match[str]) -> int:
    return int(match["layer"] or match["cell"] or 0)
