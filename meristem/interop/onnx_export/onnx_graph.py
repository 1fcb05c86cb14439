"""One ONNX graph: named inputs and outputs, and its export by torch."""

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

from meristem.config.errors import MeristemError

EXAMPLE_SIZES = {"batch": 2, "length": 3, "past": 5, "total": 8, "source": 7, "new_source": 4, "past_source": 3}
"""Example sizes of dynamic axes during export; `total` is past + length and `source` is past_source + new_source."""
MAX_INLINE_BYTES = 1 << 30  # maximum bytes of weights inside the graph's own file; protobuf is limited to 2 GB


@dataclass(frozen=True)
class GraphInput:
    """A named input."""

    name: str
    axes: tuple[str | int, ...]
    """Names of dynamic axes, or fixed sizes."""
    dtype: torch.dtype = torch.int64

    def example_tensor(self) -> Tensor:
        """Any tensor of this shape; ones, since a mask of zeros would mask everything."""
        return torch.ones(
            [EXAMPLE_SIZES[axis] if isinstance(axis, str) else axis for axis in self.axes], dtype=self.dtype
        )

    def dynamic_axes(self) -> dict[int, str]:
        """Axis index → name of the dynamic axes."""
        return {number: axis for number, axis in enumerate(self.axes) if isinstance(axis, str)}


@dataclass(frozen=True, kw_only=True)
class OnnxGraph:
    """A module to be exported to a file."""

    file: str
    module: nn.Module
    inputs: tuple[GraphInput, ...]
    past: tuple[GraphInput, ...] = ()
    """Inputs that the module takes as one list after the others: the KV cache."""
    outputs: tuple[str, ...]
    heads: tuple[str, ...] = ()
    """The model's heads in the graph."""

    @property
    def all_inputs(self) -> tuple[GraphInput, ...]:
        """All inputs in order."""
        return self.inputs + self.past


def cache_inputs(
    num_layers: int, num_heads: int, head_dim: int, *, parts: Sequence[tuple[str, str]]
) -> tuple[GraphInput, ...]:
    """Keys and values of every layer; `parts` are (infix of their names, axis along which they grow)."""
    return tuple(
        GraphInput(f"past_key_values.{layer}{part}.{which}", ("batch", num_heads, axis, head_dim), torch.float32)
        for layer in range(num_layers)
        for part, axis in parts
        for which in ("key", "value")
    )


def present_names(past: Sequence[GraphInput]) -> tuple[str, ...]:
    """The output names of the KV cache."""
    return tuple(port.name.replace("past_key_values", "present") for port in past)


def save_graph(graph: OnnxGraph, folder: Path) -> None:
    """Write the graph's file, and its weights to a separate file if they are large."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    model = export_graph(graph)
    ClearMetadataAndDocStringPass()(model)  # names and paths of source files, half of a small graph's size
    model.producer_name, model.producer_version = "meristem", None
    size = sum(
        initializer.const_value.nbytes
        for initializer in model.graph.initializers.values()
        if initializer.const_value is not None
    )
    onnx_ir.save(model, folder / graph.file, external_data=f"{graph.file}_data" if size > MAX_INLINE_BYTES else None)


def export_graph(graph: OnnxGraph) -> Any:
    """The graph made by torch's exporter, which traces with example inputs."""
    example_inputs: list[Any] = [port.example_tensor() for port in graph.inputs]
    dynamic_shapes: list[Any] = [port.dynamic_axes() for port in graph.inputs]
    if graph.past:
        example_inputs.append([port.example_tensor() for port in graph.past])
        dynamic_shapes.append([port.dynamic_axes() for port in graph.past])
    with torch.no_grad(), _silence_exporter():
        try:
            program = torch.onnx.export(
                graph.module,
                tuple(example_inputs),
                dynamo=True,
                dynamic_shapes=tuple(dynamic_shapes),
                input_names=[port.name for port in graph.all_inputs],
                output_names=list(graph.outputs),
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise MeristemError(
                f"{graph.file}: torch {torch.__version__} could not export this graph; no file was written "
                f"({str(error).splitlines()[0]})"
            ) from error
    assert program is not None
    return program.model


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Without the messages of torch's exporter, such as those about optional libraries."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
