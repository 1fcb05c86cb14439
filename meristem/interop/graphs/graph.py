"""One ONNX graph: what it reads and says by name, and how torch turns a module into it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import MeristemError

SIZES = {"batch": 2, "length": 3, "past": 5, "total": 8, "source": 7, "new_source": 4, "past_source": 3}
"""Sizes of free axes while a graph is drawn; `total` is past + length and `source` is past_source + new_source."""
LARGE = 1 << 30  # bytes of weights that still lie inside the graph's own file; protobuf ends at 2 GB


@dataclass(frozen=True)
class Port:
    """An input."""

    name: str
    axes: tuple[str | int, ...]
    """Each a free axis by its name, or a fixed size."""
    kind: torch.dtype = torch.int64

    def example(self) -> Tensor:
        """Any tensor of this shape; ones, since a mask of zeros would hide everything."""
        return torch.ones([SIZES[axis] if isinstance(axis, str) else axis for axis in self.axes], dtype=self.kind)

    def free(self) -> dict[int, str]:
        """The axes that may have any size."""
        return {number: axis for number, axis in enumerate(self.axes) if isinstance(axis, str)}


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A module on its way into a file."""

    file: str
    module: nn.Module
    inputs: tuple[Port, ...]
    past: tuple[Port, ...] = ()
    """What the module takes as one list after its inputs: keys and values of what was read before."""
    outputs: tuple[str, ...]
    heads: tuple[str, ...] = ()
    """The model's heads that it asks."""

    @property
    def ports(self) -> tuple[Port, ...]:
        """All inputs in order."""
        return self.inputs + self.past


def cached(layers: int, heads: int, channels: int, *, parts: Sequence[tuple[str, str]]) -> tuple[Port, ...]:
    """Keys and values of every layer; a part is what stands in their name and the axis that they grow along."""
    return tuple(
        Port(f"past_key_values.{layer}{part}.{which}", ("batch", heads, axis, channels), torch.float32)
        for layer in range(layers)
        for part, axis in parts
        for which in ("key", "value")
    )


def presents(past: Sequence[Port]) -> tuple[str, ...]:
    """The names under which the same come out again, longer."""
    return tuple(port.name.replace("past_key_values", "present") for port in past)


def save(graph: Graph, folder: Path) -> None:
    """Write the graph's file, and beside it one of its weights where these are large."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    model = drawn(graph)
    ClearMetadataAndDocStringPass()(model)  # names and places of source files, half of a small graph's size
    model.producer_name, model.producer_version = "meristem", None
    size = sum(one.const_value.nbytes for one in model.graph.initializers.values() if one.const_value is not None)
    onnx_ir.save(model, folder / graph.file, external_data=f"{graph.file}_data" if size > LARGE else None)


def drawn(graph: Graph) -> Any:
    """The graph as torch's exporter draws it; nothing is ever run on real input."""
    given = [port.example() for port in graph.inputs]
    free = [port.free() for port in graph.inputs]
    past, past_free = [port.example() for port in graph.past], [port.free() for port in graph.past]
    with torch.no_grad(), _quiet():
        try:
            program = torch.onnx.export(
                graph.module,
                (*given, past) if past else tuple(given),
                dynamo=True,
                dynamic_shapes=(*free, past_free) if past else tuple(free),
                input_names=[port.name for port in graph.ports],
                output_names=list(graph.outputs),
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise MeristemError(
                f"{graph.file}: torch {torch.__version__} could not draw this graph; no file was written "
                f"({str(error).splitlines()[0]})"
            ) from error
    assert program is not None
    return program.model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of itself, such as libraries that are not needed and not there."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
