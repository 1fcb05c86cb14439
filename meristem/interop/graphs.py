"""A run as ONNX graphs for onnxruntime."""

from __future__ import annotations

from pathlib import Path

from meristem.interop.exporting import Exported


def export_run(run: Path, out: Path) -> Exported:
    """Write the graphs."""
    raise NotImplementedError
