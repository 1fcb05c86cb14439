"""ONNX export: a run as graphs for onnxruntime."""

from meristem.interop.onnx_export.graph_export import export_onnx

__all__ = ["export_onnx"]
