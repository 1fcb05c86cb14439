"""A run as ONNX graphs for onnxruntime."""

from meristem.interop.graphs.writing import export_run

__all__ = ["export_run"]
